//! The trace that an event belongs to.
//!
//! Headers as of W3C Trace Context: <https://www.w3.org/TR/trace-context/#traceparent-header>.

use opentelemetry::trace::TraceContextExt;
use sekali_schemas::HeadersBuilder;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Appends `traceparent`, and `tracestate` when there is one, of the current span; nothing outside a trace.
pub(crate) fn push_current(headers: &mut HeadersBuilder) {
    let context = tracing::Span::current().context();
    let span = context.span();
    let current = span.span_context();
    if !current.is_valid() {
        return;
    }
    let flags = current.trace_flags().to_u8();
    headers.push(TRACEPARENT, Some(format!("00-{}-{}-{flags:02x}", current.trace_id(), current.span_id()).as_bytes()));
    let state = current.trace_state().header();
    if !state.is_empty() {
        headers.push("tracestate", Some(state.as_bytes()));
    }
}

/// Name of the header.
pub(crate) const TRACEPARENT: &str = "traceparent";

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::{Event, IntoRecord, ResourceId};

    fn event() -> Event {
        Event::raw("t", ResourceId::new("r").unwrap(), "type", "text/plain", "x").unwrap()
    }

    fn traceparent(event: &Event) -> Option<String> {
        let headers = event.into_record().unwrap().headers;
        let found: Vec<String> = headers
            .iter()
            .filter(|it| it.name == TRACEPARENT)
            .map(|it| String::from_utf8(it.value.unwrap().to_vec()).unwrap())
            .collect();
        assert!(found.len() <= 1, "{found:?}");
        found.into_iter().next()
    }

    #[test]
    fn an_event_belongs_to_the_trace_of_the_current_span_unless_it_says_otherwise() {
        let provider = SdkTracerProvider::builder().build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            assert_eq!(traceparent(&event()), None);
            let span = tracing::info_span!("order");
            let _entered = span.enter();
            let expected = span.context().span().span_context().trace_id().to_string();
            let parts = traceparent(&event()).unwrap();
            let parts: Vec<&str> = parts.split('-').collect();
            assert_eq!((parts.len(), parts[0], parts[1], parts[3]), (4, "00", expected.as_str(), "01"));
            let own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
            assert_eq!(traceparent(&event().header(TRACEPARENT, own).unwrap()).as_deref(), Some(own));
        });
    }
}
