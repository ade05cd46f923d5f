use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;

fn jwt(payload: &str) -> String {
    format!("{}.{}.signature", URL_SAFE_NO_PAD.encode("{}"), URL_SAFE_NO_PAD.encode(payload))
}

fn in_file(text: &str) -> Result<Token, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    TokenFile(file.path().to_owned()).token().map_err(|it| it.to_string())
}

#[test]
fn a_file_is_read_with_its_expiry() {
    let exp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 60;
    let token = in_file(&format!("{}\n", jwt(&format!(r#"{{"exp":{exp},"sub":"stock","aud":["kafka"]}}"#)))).unwrap();
    assert_eq!((token.expires_at, &*token.principal), (UNIX_EPOCH + Duration::from_secs(exp), "stock"));
    assert!(!token.value.expose_secret().ends_with('\n'));
    assert!(!format!("{token:?}").contains("signature"));
    let native = token.into_native().unwrap();
    assert_eq!(native.lifetime_ms, i64::try_from(exp * 1000).unwrap());
}

#[test]
fn what_is_no_token_is_said_without_showing_it() {
    for (text, said) in [
        ("hunter2".to_owned(), "holds no JWT"),
        ("a.hunter2!.c".to_owned(), "not base64"),
        (jwt(r#"{"sub":"hunter2"}"#), "no expiry"),
        (jwt(r#"{"exp":1,"sub":"hunter2"}"#), "has run out"),
        (jwt(r#"{"exp":-1}"#), "no moment"),
    ] {
        let error = in_file(&text).unwrap_err();
        assert!(error.contains("kafka.oauth_token_file") && error.contains(said), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let missing = TokenFile("/no/such/file".into()).token().unwrap_err().to_string();
    assert!(missing.starts_with("kafka.oauth_token_file /no/such/file cannot be read"), "{missing}");
}
