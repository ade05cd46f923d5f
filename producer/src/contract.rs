//! What producers and consumers of an event agree on: its schema, and how the payload says which.

use std::fmt;

use sekali_schemas::cloudevents::{self, DataKind};
use sekali_schemas::{DecodeError, Framing, Headers, Message, confluent};
use serde_json::Value;

use crate::config::{RegistrySection, SchemasSection, Validate};
use crate::registry::{Entry, Registry};
use crate::schemas::{KnownSchema, Schemas, Validator, Violation};
use crate::{Error, ErrorKind, IntoRecord, OutboundRecord};

/// Holds payloads against schemas, and reads and writes the prefix of a schema registry. Make one for a program: schemas
/// are compiled once, and what the registry says is remembered.
pub struct Contract {
    schemas: Schemas,
    registry: Option<Registry>,
    consume: Validate,
    produce: Validate,
}

/// Why a payload does not go through. No text of it has a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The registry is away, refuses the login or the schema: no verdict on the payload.
    #[error("the schema registry is no help: {0}")]
    Registry(String),
    /// The payload names a schema that the registry does not have.
    #[error("schema {0} is not in the registry")]
    UnknownId(u32),
    /// The payload's schema says nothing about JSON, or points elsewhere.
    #[error("schema {0} of the registry cannot be used: {1}")]
    Unusable(u32, String),
    /// The payload is not what its schema wants.
    #[error(transparent)]
    Violated(#[from] Violation),
    /// Only known types are let through.
    #[error("no schema is known for the type of the event, and schemas.{0} is \"strict\"")]
    NoSchema(&'static str),
    /// Not even JSON.
    #[error(transparent)]
    Undecodable(#[from] DecodeError),
}

impl Refusal {
    pub(crate) fn status(status: u16, doing: &str) -> Refusal {
        Refusal::Registry(format!("it answered {status} when {doing}"))
    }

    pub(crate) fn unreadable() -> Refusal {
        Refusal::Registry("its answer cannot be read".to_owned())
    }
}

impl Contract {
    /// Compiles what is configured; `None` when that is nothing.
    ///
    /// # Errors
    /// A file that is no schema, an unreadable password or certificate.
    pub fn new(schemas: &SchemasSection, registry: &RegistrySection) -> Result<Option<Contract>, Error> {
        let registry = Registry::new(registry)?;
        let (consume, produce) = (schemas.consume, schemas.produce);
        if registry.is_none() && consume == Validate::Off && produce == Validate::Off {
            return Ok(None);
        }
        let schemas = Schemas::load(schemas.directory.as_deref())
            .map_err(|problems| Error::new(ErrorKind::Config, "use schemas.directory").because(problems.join("; ")))?;
        Ok(Some(Contract { schemas, registry, consume, produce }))
    }

    /// Whether payloads may have a prefix.
    pub fn framing(&self) -> Framing {
        if self.registry.is_some() { Framing::Registry } else { Framing::Plain }
    }

    /// Whether anything is to be done with a message before its handler gets it.
    pub fn reads(&self) -> bool {
        self.registry.is_some() || self.consume != Validate::Off
    }

    /// Holds a message against its schema, as configured. A tombstone has none.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn check(&self, message: &Message) -> Result<(), Refusal> {
        let Some(payload) = message.unframed() else { return Ok(()) };
        if let (Some(id), Some(registry)) = (message.schema_id(), &self.registry) {
            return match (&*registry.schema(id).await?, self.consume) {
                (Entry::Json(_), Validate::Off) => Ok(()),
                (Entry::Json(validator), _) => check(validator, &message.data()?),
                (Entry::Unusable(_), Validate::Off | Validate::Known) if is_json(payload) => Ok(()),
                (Entry::Unusable(why), _) => Err(Refusal::Unusable(id, why.clone())),
            };
        }
        if self.consume == Validate::Off {
            return Ok(());
        }
        match (self.find(message.headers(), payload), self.consume) {
            (Some(schema), _) => check(&schema.validator, &message.data()?),
            (None, Validate::Strict) => Err(Refusal::NoSchema("consume")),
            (None, _) => Ok(()),
        }
    }

    /// The record that is published: held against its schema and with its prefix, as configured. A tombstone has neither,
    /// and what has a prefix already keeps it. Events in structured mode get none: a schema says nothing of the envelope.
    ///
    /// Where a registry is configured, the first event of a type on a topic asks it: begin your transaction after that.
    ///
    /// # Errors
    /// See [`Refusal`], which is the cause; or the event is invalid.
    pub async fn write(&self, record: impl IntoRecord) -> Result<OutboundRecord, Error> {
        let mut record = record.into_record()?;
        let refused = |refusal: Refusal| {
            Error::new(ErrorKind::Schema, format!("write an event for topic {}", record.topic)).because(refusal)
        };
        let Some(payload) = record.payload.as_deref() else { return Ok(record) };
        if self.registry.is_some() && confluent::read(payload).is_some() {
            return Ok(record);
        }
        let Some(schema) = self.find(&record.headers, payload) else {
            return match self.produce {
                Validate::Strict => Err(refused(Refusal::NoSchema("produce"))),
                Validate::Off | Validate::Known => Ok(record),
            };
        };
        if self.produce != Validate::Off {
            let data = record.data().map_err(|error| refused(error.into()))?;
            check(&schema.validator, &data).map_err(refused)?;
        }
        if let Some(registry) = self.registry.as_ref().filter(|_| !cloudevents::is_structured(&record.headers)) {
            let id = registry.id_of(&record.topic, schema).await.map_err(refused)?;
            record.payload = Some(confluent::write(id, payload).into());
        }
        Ok(record)
    }

    fn find(&self, headers: &Headers, payload: &[u8]) -> Option<&KnownSchema> {
        self.schemas.find(&DataKind::of(headers, payload)?).map(|it| &**it)
    }
}

impl fmt::Debug for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contract")
            .field("consume", &self.consume)
            .field("produce", &self.produce)
            .field("registry", &self.registry.is_some())
            .finish_non_exhaustive()
    }
}

fn check(validator: &Validator, data: &[u8]) -> Result<(), Refusal> {
    let document: Value = serde_json::from_slice(data).map_err(|error| DecodeError::from_json(&error))?;
    Ok(validator.check(&document)?)
}

/// Whether it could be read at all: what a registry of Avro schemas says of it nobody here can follow.
fn is_json(payload: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(payload).is_ok()
}

#[cfg(test)]
mod tests;
