//! Versions of the servers under test, each in one place.

/// PostgreSQL's image tag for testcontainers: the oldest version that is supported.
pub(crate) const POSTGRES_IMAGE: &str = "15";

/// Version of the relocatable PostgreSQL binaries in Maven, the last resort.
pub(crate) const POSTGRES_BINARIES: &str = "18.1.0";

/// Version of Apache Kafka: image tag and jars.
pub(crate) fn kafka() -> &'static str {
    const POM: &str = include_str!("../../kafka/pom.xml");
    let (_, rest) = POM.split_once("<kafka.version>").expect("pom.xml names the version of Kafka");
    rest.split('<').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn pom_names_a_kafka_4() {
        assert!(super::kafka().starts_with("4."), "{}", super::kafka());
    }
}
