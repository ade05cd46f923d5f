use super::*;

fn resolve(pairs: &[(&str, &[u8])]) -> Result<String, KeyError> {
    let mut builder = Headers::builder();
    for (name, value) in pairs {
        builder.push(name, Some(value));
    }
    IdempotencyKey::from_headers(&builder.build()).map(|it| it.as_str().to_owned())
}

#[test]
fn headers_are_asked_in_order() {
    let all: [(&str, &[u8]); 4] = [("id", b"d"), ("ce_source", b"/s"), ("ce_id", b"c"), ("idempotency-key", b"i")];
    assert_eq!(resolve(&all).as_deref(), Ok("i"));
    assert_eq!(resolve(&all[..3]).as_deref(), Ok("/s\u{1f}c"));
    assert_eq!(resolve(&all[..1]).as_deref(), Ok("d"));
    assert_eq!(resolve(&[]), Err(KeyError::Missing));
}

#[test]
fn what_identifies_nothing_is_refused() {
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    let refused = |headers: &[(&str, &[u8])], expected| assert_eq!(resolve(headers), Err(expected));
    refused(&[("idempotency-key", b"")], KeyError::Empty);
    refused(&[("idempotency-key", long.as_bytes())], KeyError::TooLong);
    refused(&[("idempotency-key", &[0xFF])], KeyError::Unreadable);
    refused(&[("idempotency-key", b"a"), ("idempotency-key", b"b")], KeyError::Ambiguous);
    refused(&[("ce_id", b"1")], KeyError::NoSource);
    refused(&[("ce_id", b"1\x1f"), ("ce_source", b"s")], KeyError::Unreadable);
    assert_eq!(resolve(&[("idempotency-key", b"a"), ("idempotency-key", b"a")]).as_deref(), Ok("a"));
}

#[test]
fn a_uuid_is_its_own_form_in_either_spelling() {
    let v7 = "01890A5D-AC96-774B-BCCE-B302099A8057";
    let key = IdempotencyKey::new(v7).unwrap();
    assert_eq!(key.uuid().to_string(), v7.to_lowercase());
    let simple = IdempotencyKey::new(v7.replace('-', "")).unwrap();
    assert_eq!(simple.uuid(), key.uuid());
}

#[test]
fn other_text_is_hashed_and_the_hash_is_pinned() {
    // SHA-256("sekali-key\0536365-1"), first 16 bytes, version 8: computed outside of this program.
    let key = IdempotencyKey::new("536365-1").unwrap();
    assert_eq!(key.uuid().to_string(), "dc5ab8dc-57ca-870d-8e77-d19211349b0b");
    assert_eq!(key.uuid().get_version_num(), 8);
    assert_ne!(IdempotencyKey::new("{536365-1}").unwrap().uuid(), key.uuid());
}

#[test]
fn compound_keys_do_not_run_into_each_other() {
    let one = IdempotencyKey::from_cloudevent("a", "bc").unwrap();
    let other = IdempotencyKey::from_cloudevent("ab", "c").unwrap();
    assert_ne!(one.uuid(), other.uuid());
    assert_ne!(
        IdempotencyKey::from_coordinates("t", 1, 23).uuid(),
        IdempotencyKey::from_coordinates("t", 12, 3).uuid()
    );
}
