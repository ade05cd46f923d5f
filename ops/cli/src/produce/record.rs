//! How a line becomes a record.

use std::borrow::Cow;

use sekali_producer::{Event, IntoRecord, OutboundRecord, ResourceId};
use sekali_schemas::IdempotencyKey;

use super::ProduceArgs;
use super::fields::{BadLine, Field, pick};
use crate::exit::Failure;

const JSON: &str = "application/json";

pub(super) struct Recipe {
    topic: String,
    source: String,
    key: Field,
    id: Field,
    ty: Type,
}

enum Type {
    Field(Field),
    Fixed(String),
}

impl Recipe {
    /// Checks what holds for every line.
    pub(super) fn new(args: &ProduceArgs) -> Result<Recipe, Failure> {
        sekali_schemas::topics::check_name(&args.topic).map_err(|error| Failure::usage(error.to_string()))?;
        if args.source.is_empty() {
            return Err(Failure::usage("--source must not be empty: give a URI reference such as /shop/import"));
        }
        let ty = match &args.event_type {
            Some(name) if name.is_empty() => return Err(Failure::usage("--event-type must not be empty")),
            Some(name) => Type::Fixed(name.clone()),
            None => Type::Field(args.type_field.clone()),
        };
        Ok(Recipe {
            topic: args.topic.clone(),
            source: args.source.clone(),
            key: args.key.clone(),
            id: args.id.clone(),
            ty,
        })
    }

    /// The record of a line, which is its payload byte for byte.
    pub(super) fn record(&self, line: &[u8]) -> Result<OutboundRecord, BadLine> {
        let (key, id, ty) = match &self.ty {
            Type::Field(field) => {
                let [key, id, ty] = pick(line, [&self.key, &self.id, field])?;
                (key, id, ty)
            }
            Type::Fixed(name) => {
                let [key, id] = pick(line, [&self.key, &self.id])?;
                (key, id, Cow::Borrowed(name.as_str()))
            }
        };
        let event = || {
            let id = IdempotencyKey::new(id.as_ref())?;
            let resource = ResourceId::new(key.into_owned())?;
            let event = Event::raw(self.topic.as_str(), resource, ty, JSON, line.to_vec())?;
            event.idempotency_key(id).source(self.source.as_str())?.into_record()
        };
        event().map_err(|error| BadLine::Unusable(format!("cannot be an event: {error}")))
    }
}
