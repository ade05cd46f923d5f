use super::*;

fn control(attempt: u32, message: &str) -> Control {
    Control {
        attempt,
        due_at_ms: Some(1_700_000_000_123),
        group: "stock".to_owned(),
        origin: Origin { topic: "stock.adjusted".into(), partition: 3, offset: 42, timestamp_ms: Some(7) },
        first_failed_at_ms: 1_699_999_999_000,
        error: ErrorInfo::new("transient", "40001", message),
        replay: None,
    }
}

fn user() -> Headers {
    let mut builder = Headers::builder().text("traceparent", "00-ab-cd-01");
    builder.push("null", None);
    builder.push("bytes", Some(&[0xC3, 0x28]));
    builder.push("traceparent", Some(b"second"));
    builder.build()
}

#[test]
fn survives_any_number_of_hops_with_a_constant_count_and_bounded_size() {
    let mut headers = control(2, "ü".repeat(25_000).as_str()).onto(&user());
    let (count, size) = (headers.len(), headers.size_bytes());
    for attempt in 3..=9 {
        let read = Control::read(&headers).unwrap();
        assert_eq!(read.attempt, attempt - 1);
        assert_eq!(read.origin.offset, 42);
        headers = control(attempt, "ü".repeat(25_000).as_str()).onto(&headers);
        assert_eq!((headers.len(), headers.size_bytes()), (count, size));
    }
    assert_eq!(headers.text(ERROR_MESSAGE).unwrap().len(), ERROR_MESSAGE_BYTES_MAX);
    assert_eq!(user_headers(&headers), user());
}

#[test]
fn a_replay_is_marked_until_it_ends_and_never_by_chance() {
    let (letter, key) = (Uuid::from_u128(7), Uuid::from_u128(8));
    for key in [None, Some(key)] {
        let mut headers = user();
        for attempt in 2..5 {
            let replayed = Control { replay: Some(Replay { letter, key }), ..control(attempt, "no") };
            headers = replayed.onto(&headers);
            assert_eq!(Control::read(&headers), Ok(replayed));
        }
        assert_eq!(headers.len(), 4 + 12 + usize::from(key.is_some()));
        assert_eq!(control(5, "no").onto_dead_letter(&headers).text(REPLAY), None, "it has ended");
        assert_eq!(user_headers(&headers), user());
    }
    let mut builder = copy_user(&control(2, "").onto(&user()), false);
    control(2, "").write(&mut builder);
    builder.push(REPLAY, Some(b"any"));
    assert_eq!(Control::read(&builder.build()).unwrap_err().header, REPLAY);
}

#[test]
fn a_dead_letter_carries_both_families_once() {
    let mut headers = user();
    for _ in 0..3 {
        headers = control(6, "no").onto_dead_letter(&headers);
    }
    assert_eq!(headers.len(), 4 + 11 + 6);
    assert_eq!(headers.text(share_group::DELIVERY_COUNT), Some("6"));
    assert_eq!(headers.text(share_group::OFFSET), Some("42"));
}

#[test]
fn no_spelling_of_the_attempt_restarts_the_count() {
    let good = control(2, "").onto(&Headers::default());
    assert_eq!(Control::read(&good).map(|it| it.attempt), Ok(2));
    let bad: [Option<&[u8]>; 12] = [
        None,
        Some(b""),
        Some(b"abc"),
        Some(b"-1"),
        Some(b"0"),
        Some(b"1.5"),
        Some(b"32768"),
        Some(b"999999999999"),
        Some(&[0xFF]),
        Some(&[0, 0, 0, 2]),
        Some(b" 2"),
        Some("٢".as_bytes()),
    ];
    for value in bad {
        let mut builder = Headers::builder();
        for header in good.iter() {
            builder.push(header.name, if header.name == ATTEMPT { value } else { header.value });
        }
        assert_eq!(Control::read(&builder.build()).unwrap_err().header, ATTEMPT, "{value:?}");
    }
    for text in ["127", "128", "32767"] {
        let mut builder = copy_user(&good, false);
        control(text.parse().unwrap(), "").write(&mut builder);
        assert_eq!(Control::read(&builder.build()).unwrap().attempt.to_string(), text);
    }
}

#[test]
fn an_attempt_given_twice_must_agree() {
    let mut builder = Headers::builder();
    control(2, "").write(&mut builder);
    builder.push(ATTEMPT, Some(b"2"));
    assert!(Control::read(&builder.build()).is_ok());
    let mut builder = Headers::builder();
    control(2, "").write(&mut builder);
    builder.push(ATTEMPT, Some(b"1"));
    assert_eq!(Control::read(&builder.build()).unwrap_err().problem, "given twice with different values");
}

#[test]
fn text_is_cleaned_for_postgres_and_cut_between_characters() {
    assert_eq!(clean("a\0b\nc", 10), "a b c");
    assert_eq!(clean("äöü", 3), "ä");
    assert_eq!(clean("äöü", 0), "");
}
