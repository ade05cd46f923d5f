//! Consumer groups as an outsider sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use super::{Kafka, TIMEOUT, blocking};
use crate::harness::eventually;

/// One group and the ends of the topics it reads, asked again and again through one client.
pub struct GroupView {
    client: Arc<BaseConsumer>,
    /// Topic and partition to its first offset and its end.
    marks: Ends,
}

impl Kafka {
    /// A view of what a group has read of some topics, up to their present ends.
    ///
    /// # Panics
    /// The broker does not answer.
    pub async fn view(&self, group: &str, topics: &[String]) -> GroupView {
        let client = Arc::new(self.reader(&[("group.id", group), ("reconnect.backoff.max.ms", "500")]));
        // A new client may not know a partition yet that the broker has long had.
        let what = format!("the broker tells the ends of what {group} reads");
        let marks = eventually(&what, TIMEOUT, async || {
            let (asking, topics) = (client.clone(), topics.to_vec());
            blocking(move || ends(&asking, topics)).await
        })
        .await;
        GroupView { client, marks }
    }

    /// Committed offset of each partition that has one. Asked by a client that never joins the group.
    ///
    /// # Panics
    /// The broker does not answer.
    pub async fn committed_offsets(&self, group: &str, topic: &str) -> BTreeMap<i32, i64> {
        let partitions = self.partitions(topic).await;
        let client = self.reader(&[("group.id", group)]);
        let topic = topic.to_owned();
        let list = blocking(move || {
            let mut list = TopicPartitionList::new();
            list.add_partition_range(&topic, 0, partitions - 1);
            client.committed_offsets(list, TIMEOUT).expect("the group's coordinator answers")
        })
        .await;
        let committed = list.elements().into_iter().filter_map(|it| match it.offset() {
            Offset::Offset(offset) => Some((it.partition(), offset)),
            _ => None,
        });
        committed.collect()
    }

    /// Records that the group has not committed yet, over all partitions.
    pub async fn lag(&self, group: &str, topic: &str) -> i64 {
        let committed = self.committed_offsets(group, topic).await;
        let lag =
            |(partition, (start, end)): (i32, (i64, i64))| end - committed.get(&partition).copied().unwrap_or(start);
        self.watermarks(topic).await.into_iter().map(lag).sum()
    }

    /// Names of all topics.
    ///
    /// # Panics
    /// The broker does not answer.
    pub async fn topic_names(&self) -> Vec<String> {
        let client = self.reader(&[]);
        blocking(move || {
            let metadata = client.fetch_metadata(None, TIMEOUT).expect("the broker lists topics");
            metadata.topics().iter().map(|it| it.name().to_owned()).collect()
        })
        .await
    }

    /// Client ids of the group's members, sorted. Sees groups of the classic protocol only.
    pub async fn group_members(&self, group: &str) -> Vec<String> {
        let client = self.reader(&[]);
        let group = group.to_owned();
        blocking(move || {
            let list = client.fetch_group_list(Some(&group), TIMEOUT).expect("the broker lists groups");
            let members = list.groups().iter().flat_map(|it| it.members()).map(|it| it.client_id().to_owned());
            let mut members: Vec<String> = members.collect();
            members.sort();
            members
        })
        .await
    }
}

/// First and next offset of each partition.
type Ends = BTreeMap<(String, i32), (i64, i64)>;

fn ends(client: &BaseConsumer, topics: Vec<String>) -> Result<Ends, KafkaError> {
    let mut marks = BTreeMap::new();
    for topic in topics {
        let metadata = client.fetch_metadata(Some(&topic), TIMEOUT)?;
        for it in metadata.topics().iter().flat_map(|it| it.partitions()) {
            marks.insert((topic.clone(), it.id()), client.fetch_watermarks(&topic, it.id(), TIMEOUT)?);
        }
    }
    Ok(marks)
}

impl GroupView {
    /// Whether the group has committed the end of every partition.
    ///
    /// # Errors
    /// It has not, or the broker does not answer; the text says where it is.
    pub async fn caught_up(&self) -> Result<(), String> {
        let mut list = TopicPartitionList::new();
        for (topic, partition) in self.marks.keys() {
            list.add_partition(topic, *partition);
        }
        let client = self.client.clone();
        let committed = blocking(move || client.committed_offsets(list, TIMEOUT)).await;
        let mut behind = Vec::new();
        for it in committed.map_err(|error| error.to_string())?.elements() {
            let (start, end) = self.marks[&(it.topic().to_owned(), it.partition())];
            let at = if let Offset::Offset(offset) = it.offset() { offset } else { start };
            if at != end {
                behind.push(format!("{} {}: committed {at}, end {end}", it.topic(), it.partition()));
            }
        }
        if behind.is_empty() { Ok(()) } else { Err(behind.join(", ")) }
    }
}
