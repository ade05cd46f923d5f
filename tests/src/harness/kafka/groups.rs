//! Consumer groups as an outsider sees them.

use std::collections::BTreeMap;

use rdkafka::consumer::Consumer;
use rdkafka::{Offset, TopicPartitionList};

use super::{Kafka, TIMEOUT, blocking};

impl Kafka {
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
