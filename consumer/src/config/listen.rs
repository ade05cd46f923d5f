//! An address to listen on, or "none".

use std::net::SocketAddr;

use serde::{Deserialize, Deserializer, Serializer};

const NONE: &str = "none";

pub(super) fn serialize<S: Serializer>(listen: &Option<SocketAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    match listen {
        Some(address) => serializer.collect_str(address),
        None => serializer.serialize_str(NONE),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == NONE {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        serde::de::Error::custom(
            "is not an address and port such as \"127.0.0.1:9464\" or \"[::1]:9464\", nor \"none\"",
        )
    })
}
