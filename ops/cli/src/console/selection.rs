//! Selections in addresses and forms.

use sekali_consumer::operate::{Act, Filter, LetterState};
use uuid::Uuid;

use super::answer::{Answer, Refusal};
use crate::commands::moment;

/// Names and values of a query or a form.
#[derive(Debug, Clone, Default)]
pub(super) struct Pairs(Vec<(String, String)>);

impl Pairs {
    pub(super) fn parse(text: &[u8]) -> Pairs {
        Pairs(form_urlencoded::parse(text).into_owned().collect())
    }

    /// The last value of a name; none when it is empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|it| it.0 == name).map(|it| it.1.trim()).filter(|it| !it.is_empty())
    }

    /// The value as it came.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|it| it.0 == name).map(|it| it.1.as_str())
    }

    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Answer<Option<T>> {
        let read =
            |it: &str| it.parse().map_err(|_| Refusal::bad(format!("{name} is no whole number that is usable here")));
        self.get(name).map(read).transpose()
    }

    pub(super) fn id(&self, name: &str) -> Answer<Option<Uuid>> {
        let read = |it: &str| it.parse().map_err(|_| Refusal::bad(format!("{name} is no id of a dead letter")));
        self.get(name).map(read).transpose()
    }

    pub(super) fn act(&self) -> Answer<Act> {
        let act = self.get("act").and_then(|given| Act::ALL.into_iter().find(|it| it.as_str() == given));
        act.ok_or_else(|| Refusal::bad("act must be replay, discard or restore"))
    }

    /// Whether anything is said that makes a filter, be it the state alone.
    pub(super) fn has_filter(&self) -> bool {
        self.0.iter().any(|(name, value)| name != "act" && !value.trim().is_empty())
    }

    /// The filter among the names; `others` are those that mean something else here.
    pub(super) fn filter(&self, others: &[&str]) -> Answer<Filter> {
        let mut filter = Filter::default();
        for (name, value) in &self.0 {
            let value = value.trim();
            if value.is_empty() || others.contains(&name.as_str()) {
                continue;
            }
            let text = || Some(value.to_owned());
            match name.as_str() {
                "consumer" => filter.consumer = text(),
                "topic" => filter.topic = text(),
                "group" => filter.group = text(),
                "class" => filter.class = text(),
                "key" => filter.key = text(),
                "text" => filter.text = text(),
                "state" if value == ANY => filter.state = None,
                "state" => filter.state = Some(state(value)?),
                "since" => filter.since = Some(when(name, value)?),
                "until" => filter.until = Some(when(name, value)?),
                "id" => filter.ids.push(value.parse().map_err(|_| Refusal::bad("id is no id of a dead letter"))?),
                _ => return Err(Refusal::bad("there is a parameter that this address does not know")),
            }
        }
        Ok(filter)
    }
}

/// Letters of every state.
pub(super) const ANY: &str = "any";

fn state(value: &str) -> Answer<LetterState> {
    LetterState::named(value).ok_or_else(|| Refusal::bad("state must be open, replaying, resolved, discarded or any"))
}

fn when(name: &str, value: &str) -> Answer<jiff::Timestamp> {
    moment(value).map_err(|why| Refusal::bad(format!("{name} is no time: {why}")))
}

/// The names and values of a filter.
pub(super) fn pairs(filter: &Filter) -> Vec<(&'static str, String)> {
    let texts = [
        ("consumer", &filter.consumer),
        ("topic", &filter.topic),
        ("group", &filter.group),
        ("class", &filter.class),
        ("key", &filter.key),
        ("text", &filter.text),
    ];
    let mut pairs: Vec<_> = texts.into_iter().filter_map(|(name, it)| Some((name, it.clone()?))).collect();
    pairs.extend(filter.state.map(|it| ("state", it.as_str().to_owned())));
    pairs.extend(filter.since.map(|it| ("since", it.to_string())));
    pairs.extend(filter.until.map(|it| ("until", it.to_string())));
    pairs.extend(filter.ids.iter().map(|it| ("id", it.to_string())));
    pairs
}

/// An address with a query, every value escaped.
pub(super) fn address(path: &str, pairs: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs);
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_survives_its_address() {
        let ids = [Uuid::from_u128(1), Uuid::from_u128(2)];
        let filter = Filter {
            topic: Some("a&b=c\"'<ü>".to_owned()),
            text: Some("'; DROP TABLE x; --".to_owned()),
            state: Some(LetterState::Discarded),
            since: Some("2030-01-31T08:00:00Z".parse().unwrap()),
            ..Filter::of_ids(ids)
        };
        let address = address("/messages", pairs(&filter));
        let (_, query) = address.split_once('?').unwrap();
        assert_eq!(Pairs::parse(query.as_bytes()).filter(&[]).unwrap(), filter);
    }

    #[test]
    fn what_is_not_understood_is_refused_and_not_repeated() {
        for query in ["state=hunter2", "since=hunter2", "id=hunter2", "hunter2=1"] {
            let refusal = Pairs::parse(query.as_bytes()).filter(&["before"]).unwrap_err();
            assert!(!format!("{refusal:?}").contains("hunter2"), "{refusal:?}");
        }
        assert!(Pairs::parse(b"before=x&topic=+").filter(&["before"]).unwrap().is_all());
    }
}
