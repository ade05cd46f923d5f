//! A duration, or "forever".

use std::time::Duration;

use sekali_producer::config::duration::{self, DurationText};
use serde::{Deserialize, Deserializer, Serializer, de};

const FOREVER: &str = "forever";

pub(super) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => duration::serialize(duration, serializer),
        None => serializer.serialize_str(FOREVER),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == FOREVER {
        return Ok(None);
    }
    let read = DurationText::deserialize(de::value::StrDeserializer::<D::Error>::new(&text));
    read.map(|it| Some(it.0))
}
