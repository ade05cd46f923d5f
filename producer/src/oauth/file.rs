//! Tokens in a file that somebody else renews, such as Kubernetes with projected service account tokens.

use std::error::Error as StdError;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{alphabet, engine::DecodePaddingMode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::{Token, TokenProvider};

/// Reads a JWT from `kafka.oauth_token_file`, anew each time it is asked.
pub(crate) struct TokenFile(pub(crate) PathBuf);

impl TokenProvider for TokenFile {
    fn token(&self) -> Result<Token, Box<dyn StdError + Send + Sync>> {
        let place = self.0.display();
        let text = fs::read_to_string(&self.0)
            .map(SecretString::from)
            .map_err(|error| format!("kafka.oauth_token_file {place} cannot be read: {error}"))?;
        let token = Token::from_jwt(SecretString::from(text.expose_secret().trim()))
            .map_err(|error| format!("kafka.oauth_token_file {place} cannot be used: {error}"))?;
        if token.expires_at <= SystemTime::now() {
            return Err(format!("the token in kafka.oauth_token_file {place} has run out: it must be renewed").into());
        }
        Ok(token)
    }
}

/// What a JWT says of itself.
pub(super) struct Claims {
    pub(super) expires_at: SystemTime,
    pub(super) subject: String,
}

#[derive(Deserialize)]
struct Payload {
    exp: f64,
    #[serde(default)]
    sub: String,
}

/// Without padding by its standard; some libraries add it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) fn claims(jwt: &str) -> Result<Claims, Box<dyn StdError + Send + Sync>> {
    let mut parts = jwt.split('.');
    let (Some(_header), Some(payload), Some(_signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("it holds no JWT: three parts with dots between them".into());
    };
    // Errors of either decoder could quote a part of the token.
    let payload = BASE64.decode(payload).map_err(|_| "its JWT is not base64")?;
    let payload: Payload =
        serde_json::from_slice(&payload).map_err(|_| "its JWT has no expiry: claim \"exp\", in seconds since 1970")?;
    let expires_at = Duration::try_from_secs_f64(payload.exp).ok().and_then(|it| UNIX_EPOCH.checked_add(it));
    let expires_at = expires_at.ok_or("its JWT has an expiry that is no moment")?;
    let subject = if payload.sub.is_empty() || payload.sub.contains('\0') { "-".to_owned() } else { payload.sub };
    Ok(Claims { expires_at, subject })
}
