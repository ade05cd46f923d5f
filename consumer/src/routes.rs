//! Which topics a consumer reads, and where its failures go.

use std::collections::HashMap;
use std::sync::Arc;

use sekali_schemas::topics::GroupTopics;

use crate::kafka::Role;

/// The topics of one group, fixed at start.
#[derive(Debug, Clone)]
pub(crate) struct Routes {
    group: String,
    /// Everything subscribed: source topics, then retry topics.
    subscribed: Vec<Subscribed>,
    by_name: HashMap<Arc<str>, usize>,
    sources: Vec<Source>,
}

#[derive(Debug, Clone)]
pub(crate) struct Subscribed {
    pub(crate) name: Arc<str>,
    pub(crate) retry: bool,
    source: usize,
}

#[derive(Debug, Clone)]
struct Source {
    name: Arc<str>,
    /// Retry topic of each tier; tiers of equal delay share one.
    tiers: Vec<String>,
    dlq: String,
}

impl Routes {
    pub(crate) fn new(group: &str, topics: &GroupTopics, delays: &[std::time::Duration]) -> Routes {
        let mut sources = Vec::new();
        let mut subscribed = Vec::new();
        let mut retries = Vec::new();
        for (source, it) in topics.topics.iter().enumerate() {
            let name: Arc<str> = it.source.as_str().into();
            let of_delay = |delay| it.retry.iter().find(|(of, _)| of == delay).map(|(_, name)| name.clone());
            sources.push(Source {
                name: name.clone(),
                tiers: delays.iter().filter_map(of_delay).collect(),
                dlq: it.dlq.clone(),
            });
            subscribed.push(Subscribed { name, retry: false, source });
            retries.extend(it.retry.iter().map(|(_, name)| Subscribed {
                name: name.as_str().into(),
                retry: true,
                source,
            }));
        }
        subscribed.extend(retries);
        let by_name = subscribed.iter().enumerate().map(|(index, it)| (it.name.clone(), index)).collect();
        Routes { group: group.to_owned(), subscribed, by_name, sources }
    }

    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    pub(crate) fn subscribed(&self) -> &[Subscribed] {
        &self.subscribed
    }

    /// Names of the topics that the client of this role reads.
    pub(crate) fn of_role(&self, role: Role) -> impl Iterator<Item = &str> {
        self.subscribed.iter().filter(move |it| it.retry == (role == Role::Retry)).map(|it| &*it.name)
    }

    /// Index of a subscribed topic.
    pub(crate) fn index(&self, topic: &str) -> Option<u16> {
        self.by_name.get(topic).and_then(|&it| u16::try_from(it).ok())
    }

    /// Name of a subscribed topic.
    pub(crate) fn name(&self, index: u16) -> &Arc<str> {
        &self.subscribed[usize::from(index)].name
    }

    /// The source topic that a subscribed topic belongs to: itself, or what its retries came from. The label `topic`.
    pub(crate) fn source_name(&self, index: u16) -> &Arc<str> {
        &self.sources[self.subscribed[usize::from(index)].source].name
    }

    /// Index of the source topic that a subscribed topic belongs to; source topics come first.
    pub(crate) fn source_index(&self, index: u16) -> u16 {
        // There are no more source topics than subscribed ones, which are counted in 16 bits.
        self.subscribed[usize::from(index)].source as u16
    }

    /// The source topics' names.
    pub(crate) fn source_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.sources.iter().map(|it| &it.name)
    }

    /// Each source topic with its retry topics, one a tier, and its dead-letter topic.
    pub(crate) fn registered(&self) -> impl Iterator<Item = (&str, &[String], &str)> {
        self.sources.iter().map(|it| (&*it.name, it.tiers.as_slice(), it.dlq.as_str()))
    }

    /// Indexes of all subscribed topics that belong to such source topics: those themselves, and their retry topics.
    pub(crate) fn subscribed_of(&self, source: impl Fn(&str) -> bool) -> Vec<u16> {
        let indexes = (0..self.subscribed.len()).filter_map(|it| u16::try_from(it).ok());
        indexes.filter(|it| source(self.source_name(*it))).collect()
    }

    /// Every dead-letter topic.
    pub(crate) fn dlqs(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|it| it.dlq.as_str())
    }

    /// Retry topic for what failed on `topic`, a source or retry topic.
    pub(crate) fn retry(&self, topic: &str, tier: usize) -> Option<&str> {
        self.source_of(topic)?.tiers.get(tier).map(String::as_str)
    }

    /// Dead-letter topic for what failed on `topic`, a source or retry topic.
    pub(crate) fn dlq(&self, topic: &str) -> Option<&str> {
        self.source_of(topic).map(|it| it.dlq.as_str())
    }

    fn source_of(&self, topic: &str) -> Option<&Source> {
        let index = *self.by_name.get(topic)?;
        self.sources.get(self.subscribed[index].source)
    }
}
