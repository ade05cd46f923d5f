//! Versions of the servers under test, each in one place.

use std::sync::LazyLock;

/// PostgreSQL's image tag for testcontainers: the oldest version that is supported.
pub(crate) const POSTGRES_IMAGE: &str = "15";

/// Versions of the relocatable PostgreSQL binaries in Maven, one a supported major version. The newest is the last
/// resort of a machine without PostgreSQL.
pub const POSTGRES_BINARIES: [&str; 4] = ["15.15.0", "16.11.0", "17.7.0", "18.1.0"];

/// Versions of Apache Kafka that `make test-versions` tries beside [`KAFKA`].
pub const KAFKA_BESIDE: [&str; 2] = ["4.1.1", "4.4.0"];

/// Environment variable that names another version of Apache Kafka than [`KAFKA`].
pub const KAFKA_VARIABLE: &str = "SEKALI_TEST_KAFKA_VERSION";

/// Version of Apache Kafka that the suite uses by itself.
pub static KAFKA: LazyLock<&str> = LazyLock::new(|| {
    const POM: &str = include_str!("../../kafka/pom.xml");
    let (_, rest) = POM.split_once("<kafka.version>").expect("pom.xml names the version of Kafka");
    rest.split('<').next().unwrap_or_default()
});

/// Version of Apache Kafka in this run: image tag and jars.
pub(crate) fn kafka() -> String {
    std::env::var(KAFKA_VARIABLE).ok().filter(|it| !it.is_empty()).unwrap_or_else(|| (*KAFKA).to_owned())
}

/// The newest relocatable PostgreSQL binaries.
pub(crate) fn newest_postgres_binaries() -> &'static str {
    POSTGRES_BINARIES[POSTGRES_BINARIES.len() - 1]
}

#[cfg(test)]
mod tests {
    #[test]
    fn pom_names_a_kafka_4() {
        assert!(super::KAFKA.starts_with("4."), "{}", *super::KAFKA);
    }
}
