use sekali_schemas::ReadAs;
use sekali_schemas::events::StockAdjusted;

use super::*;
use crate::{Event, Mode, ResourceId};

fn contract(consume: Validate, produce: Validate) -> Contract {
    let section = SchemasSection { directory: None, consume, produce };
    Contract::new(&section, &RegistrySection::default()).unwrap().unwrap()
}

fn event(ty: &str, payload: &'static str) -> Event {
    Event::raw("stock", ResourceId::new("secret").unwrap(), ty, "application/json", payload).unwrap()
}

fn message(event: &Event) -> Message {
    let OutboundRecord { topic, key, payload, headers } = event.into_record().unwrap();
    let record = sekali_schemas::Record {
        topic: topic.as_str().into(),
        partition: 0,
        offset: 0,
        timestamp_ms: None,
        key,
        payload,
        headers,
    };
    Message::read(record, ReadAs::Source, |_| None).unwrap()
}

#[test]
fn nothing_configured_is_no_contract() {
    let none = Contract::new(&SchemasSection::default(), &RegistrySection::default()).unwrap();
    assert!(none.is_none(), "so that it costs nothing");
}

#[tokio::test]
async fn what_a_schema_refuses_is_not_written() {
    let known = contract(Validate::Off, Validate::Known);
    let good = StockAdjusted { sku: "a".to_owned(), delta: 1, occurred_at: None };
    let good = Event::of("stock", ResourceId::new("a").unwrap(), &good).unwrap();
    assert_eq!(known.write(&good).await.unwrap(), (&good).into_record().unwrap());
    for mode in [Mode::Binary, Mode::Structured] {
        let bad = event("stock.adjusted", r#"{"sku": "a", "delta": "secret"}"#).mode(mode);
        let error = known.write(&bad).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        let text =
            "failed to write an event for topic stock: payload is refused by schema stock.adjusted v1 at /delta: type";
        assert_eq!(error.chain(), text);
        contract(Validate::Known, Validate::Off).write(&bad).await.unwrap();
    }
    let error = known.write(event("stock.adjusted", "secret")).await.unwrap_err();
    assert!(error.chain().ends_with("payload is not JSON (line 1 column 1)"), "{}", error.chain());
    let unknown = event("price.set", "anything");
    known.write(&unknown).await.unwrap();
    let error = contract(Validate::Off, Validate::Strict).write(&unknown).await.unwrap_err();
    assert!(error.chain().contains("schemas.produce is \"strict\""), "{}", error.chain());
}

#[tokio::test]
async fn a_registry_that_nobody_can_reach_is_no_verdict_and_its_address_is_not_said() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let waits = format!("http://{}", silent.local_addr().unwrap());
    let password = Some("hunter2".into());
    for (url, reason) in [
        ("http://127.0.0.1:1", "the connection failed: Connection refused"),
        ("http://no-such-host.invalid", "the connection failed: failed to lookup address information"),
        (waits.as_str(), "it did not answer within registry.timeout"),
    ] {
        let section = RegistrySection {
            url: Some(url.to_owned()),
            user: Some("u".to_owned()),
            password: password.clone(),
            timeout: std::time::Duration::from_millis(500),
            ..RegistrySection::default()
        };
        let contract = Contract::new(&SchemasSection::default(), &section).unwrap().unwrap();
        assert_eq!((contract.framing(), contract.reads()), (Framing::Registry, true));
        let error = contract.write(event("stock.adjusted", "{}")).await.unwrap_err().chain();
        let expected = format!("failed to write an event for topic stock: the schema registry is no help: {reason}");
        assert!(error.starts_with(&expected) && !error.contains("hunter2") && !error.contains(url), "{error}");
        contract.write(event("price.set", "{}")).await.unwrap();
        contract.write(event("stock.adjusted", "{}").mode(Mode::Structured)).await.unwrap();
        assert_eq!(contract.check(&message(&event("stock.adjusted", "no prefix"))).await, Ok(()));
    }
}

#[tokio::test]
async fn what_a_schema_refuses_is_not_handed_on() {
    let (known, strict) = (contract(Validate::Known, Validate::Off), contract(Validate::Strict, Validate::Off));
    let good = message(&event("stock.adjusted", r#"{"sku": "a", "delta": 1, "more": true}"#));
    let bad = message(&event("stock.adjusted", r#"{"sku": "", "delta": 1}"#).mode(Mode::Structured));
    let unknown = message(&event("price.set", "{}"));
    for contract in [&known, &strict] {
        assert_eq!(contract.check(&good).await, Ok(()));
        let refusal = contract.check(&bad).await.unwrap_err();
        assert_eq!(refusal.to_string(), "payload is refused by schema stock.adjusted v1 at /sku: minLength");
    }
    assert_eq!(known.check(&unknown).await, Ok(()));
    assert_eq!(strict.check(&unknown).await, Err(Refusal::NoSchema("consume")));
}
