use super::*;

fn said(code: RDKafkaErrorCode, causes: &KafkaCauses) -> String {
    explain(&KafkaError::Global(code), causes).chain()
}

#[test]
fn a_refused_login_is_told_from_a_broken_network() {
    let causes = KafkaCauses::new();
    let unreachable = said(RDKafkaErrorCode::BrokerTransportFailure, &causes);
    assert!(unreachable.contains("no broker answers: check kafka.brokers"), "{unreachable}");
    causes.note(&KafkaError::Global(RDKafkaErrorCode::Authentication), "b1: invalid credentials");
    causes.note(&KafkaError::Global(RDKafkaErrorCode::AllBrokersDown), "1/1 brokers are down");
    assert!(causes.is_login_refused());
    assert_eq!(causes.last_cause().as_deref(), Some("b1: invalid credentials"));
    for code in [RDKafkaErrorCode::BrokerTransportFailure, RDKafkaErrorCode::MessageTimedOut] {
        let refused = said(code, &causes);
        assert!(refused.contains("check kafka.sasl_username"), "{refused}");
    }
    let too_large = said(RDKafkaErrorCode::MessageSizeTooLarge, &causes);
    assert!(too_large.contains("max.message.bytes"), "an answer of the broker explains itself: {too_large}");
    let alert = "b1: Receive failed: error:0A00045C:SSL routines::tlsv13 alert certificate required";
    causes.note(&KafkaError::Global(RDKafkaErrorCode::BrokerTransportFailure), alert);
    let refused = said(RDKafkaErrorCode::BrokerTransportFailure, &causes);
    assert!(refused.contains("kafka.ssl_certificate_file"), "{refused}");
    causes.clear();
    assert_eq!(causes.last_cause(), None);
}

#[test]
fn a_fatal_error_stays() {
    let causes = KafkaCauses::new();
    causes.clone().note(&KafkaError::Global(RDKafkaErrorCode::Fatal), "gap");
    causes.clear();
    assert!(causes.is_fatal());
}

#[test]
fn each_remedy_is_named() {
    let causes = KafkaCauses::new();
    for (code, words) in [
        (RDKafkaErrorCode::UnknownTopic, "does not exist"),
        (RDKafkaErrorCode::UnknownTopicOrPartition, "does not exist"),
        (RDKafkaErrorCode::TopicAuthorizationFailed, "grant it read, write"),
        (RDKafkaErrorCode::GroupAuthorizationFailed, "grant it read on the group"),
        (RDKafkaErrorCode::ClusterAuthorizationFailed, "idempotent write"),
        (RDKafkaErrorCode::SSL, "kafka.ssl_ca_file"),
    ] {
        let text = said(code, &causes);
        assert!(text.starts_with("failed to ") && text.contains(words), "{text}");
    }
    let other = said(RDKafkaErrorCode::NotEnoughReplicas, &causes);
    assert!(other.starts_with("failed to talk to kafka: "), "{other}");
}
