#!/usr/bin/env python3
"""Writes the dashboards overview.json and internals.json, here and into the Helm chart.

usage: build.py [--check]   with --check it writes nothing and fails when a file differs
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
CHART = HERE.parent / "helm" / "sekali" / "files" / "dashboards"

GROUP = 'namespace=~"$namespace",consumer_group=~"$consumer_group"'
TOPIC = f'{GROUP},topic=~"$topic"'
OUTBOX = 'namespace=~"$namespace"'
RATE = "$__rate_interval"


def total(metric, by, selector=TOPIC, window=RATE):
    return f"sum by ({by}) (rate({metric}{{{selector}}}[{window}]))"


def most(metric, by, selector=TOPIC):
    return f"max by ({by}) ({metric}{{{selector}}})"


def quantile(q, metric, by, selector=TOPIC):
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{{{selector}}}[{RATE}])))"


def quantiles(metric, selector=TOPIC):
    return [(quantile(q, metric, "", selector), f"p{str(q)[2:].ljust(2, '0')}") for q in (0.5, 0.95, 0.99)]


# Each panel: title, description, unit, queries with their legends, and how it is drawn.
OVERVIEW = [
    ("Lag and throughput", [
        ("Lag", "Age of the oldest record that is not decided. Alerts: SekaliConsumerLagHigh, SekaliConsumerStalled.", "s",
         [(most("sekali_consumer_lag_seconds", "consumer_group, topic"), "{{consumer_group}} {{topic}}")]),
        ("Records waiting", "Records between position and end of the topics.", "short",
         [(f"sum by (consumer_group, topic) (sekali_consumer_lag_messages{{{TOPIC}}})", "{{consumer_group}} {{topic}}")]),
        ("Decided by outcome", "Deliveries decided a second. Duplicates are harmless, and a sharp rise of them is about timeouts.",
         "ops", [(total("sekali_messages_processed_total", "outcome"), "{{outcome}}")]),
        ("From publishing to decision", "Time from first publishing to the final decision, across retries. Target: 99 % in 60 s.",
         "s", quantiles("sekali_delivery_latency_seconds")),
        ("Share later than 60 s", "Share of messages decided later than 60 s, over an hour: the budget is 1 %.", "percentunit",
         [(f"1 - sum by (topic) (rate(sekali_delivery_latency_seconds_bucket{{{TOPIC},le=\"60\"}}[1h])) / "
           f"sum by (topic) (rate(sekali_delivery_latency_seconds_count{{{TOPIC}}}[1h]))", "{{topic}}")]),
        ("Transactions", "Time of one transaction: claim, handler, commit.", "s",
         quantiles("sekali_processing_duration_seconds")),
    ]),
    ("Failures", [
        ("Retries", "Messages sent to a retry topic, by tier.", "ops",
         [(total("sekali_retries_scheduled_total", "topic, tier"), "{{topic}} tier {{tier}}")]),
        ("Retries overdue", "How long the most overdue retry has been due. Alert: SekaliRetriesOverdue.", "s",
         [(most("sekali_retry_overdue_seconds", "consumer_group, topic"), "{{consumer_group}} {{topic}}")]),
        ("Dead letters", "Messages that became dead letters, by reason. Alert: SekaliDeadLetterBurst.", "ops",
         [(total("sekali_dead_letters_total", "reason"), "{{reason}}")]),
        ("Open dead letters", "Neither replayed nor discarded.", "short",
         [(most("sekali_dlq_messages", "consumer_group, topic"), "{{consumer_group}} {{topic}}")], "stat"),
        ("Oldest open dead letter", "Its age. Alerts: SekaliDeadLettersWaiting after a day, SekaliDeadLettersOld after five.",
         "s", [(most("sekali_dlq_oldest_message_age_seconds", "consumer_group, topic"), "{{consumer_group}} {{topic}}")],
         "stat"),
        ("Waiting behind failed messages", "Messages whose key waits for a failed one to be decided.", "short",
         [(most("sekali_held_messages", "consumer_group, topic"), "{{consumer_group}} {{topic}}")]),
        ("Duplicates", "Share of the deliveries. Alerts: SekaliDuplicateRateHigh, SekaliDuplicateRateRising.", "percentunit",
         [(f"sum by (topic) (rate(sekali_messages_processed_total{{{TOPIC},outcome=\"duplicate\"}}[{RATE}])) / "
           f"sum by (topic) (rate(sekali_messages_processed_total{{{TOPIC}}}[{RATE}]))", "{{topic}}")]),
        ("Dead-letter budget spent", "1 while the group waits because almost nothing succeeds.", "short",
         [(most("sekali_dead_letter_budget_spent", "consumer_group", GROUP), "{{consumer_group}}")], "stat"),
    ]),
    ("Outbox, group and database", [
        ("Outbox: oldest record", "Age of the oldest record that Kafka has not acknowledged. Alert: SekaliOutboxBacklogOld.",
         "s", [(most("sekali_outbox_oldest_pending_age_seconds", "namespace, outbox", OUTBOX), "{{namespace}} {{outbox}}")]),
        ("Outbox: waiting records", "Records that Kafka has not acknowledged, counted up to 100000.", "short",
         [(most("sekali_outbox_pending_messages", "namespace, outbox", OUTBOX), "{{namespace}} {{outbox}}")]),
        ("Outbox: published", "Records by result: ok, refused (dead letter), failed (sent again).", "ops",
         [(total("sekali_outbox_published_total", "result", OUTBOX), "{{result}}")]),
        ("Processes", "Processes of each group by version.", "short",
         [(f"count by (consumer_group, version) (sekali_build_info{{{GROUP}}})", "{{consumer_group}} {{version}}")]),
        ("Rebalances", "Changes of the assignment over 15 minutes. Alert: SekaliRebalanceStorm.", "short",
         [(f"sum by (event) (increase(sekali_rebalances_total{{{GROUP}}}[15m]))", "{{event}}")]),
        ("Database answers", "1 while every process reaches PostgreSQL.", "short",
         [(f"min by (consumer_group) (sekali_db_up{{{GROUP}}})", "{{consumer_group}}")], "stat"),
        ("Connections", "Connections of the pools, and requests that wait for one.", "short",
         [(f"sum by (state) (sekali_db_pool_connections{{{GROUP}}})", "{{state}}"),
          (f"sum(sekali_db_pool_waiting{{{GROUP}}})", "waiting")]),
    ]),
]

INTERNALS = [
    ("Partitions and batches", [
        ("Lag by partition", "Records between position and end of each partition.", "short",
         [(f"max by (topic, partition) (sekali_consumer_lag_messages{{{TOPIC}}})", "{{topic}}/{{partition}}")]),
        ("Partitions", "Partitions of the topic, those that are owned, and those that are not fetched now.", "short",
         [(most("sekali_topic_partitions", "topic"), "{{topic}} in all"),
          (f"sum by (topic) (sekali_assigned_partitions{{{TOPIC}}})", "{{topic}} owned"),
          (f"sum by (topic) (sekali_paused_partitions{{{TOPIC}}})", "{{topic}} paused")]),
        ("Paused by an operator", "1 while `sekali pause` holds the topic: nothing more of it is begun. Alert: SekaliTopicPausedLong.",
         "short", [(most("sekali_topic_paused", "topic"), "{{topic}}")]),
        ("Received", "Records received a second, from source and retry topics.", "ops",
         [(total("sekali_messages_received_total", "topic"), "{{topic}}")]),
        ("Messages in a transaction", "Size of batches.", "short", quantiles("sekali_batch_size_messages", GROUP)),
        ("In memory", "Messages received and not decided.", "short",
         [(f"sum by (consumer_group) (sekali_inflight_messages{{{GROUP}}})", "{{consumer_group}}")]),
        ("Bytes in memory", "Bytes of these, of the clients of source and retry topics.", "bytes",
         [(f"sum by (client) (sekali_buffered_bytes{{{GROUP}}})", "{{client}}")]),
        ("Attempts", "Attempts of messages that needed more than one.", "short",
         quantiles("sekali_attempts_per_message")),
        ("Kept by the topic", "How long the source topic keeps records; -1 for ever.", "s",
         [(most("sekali_topic_retention_seconds", "topic"), "{{topic}}")]),
    ]),
    ("Offsets and the Kafka client", [
        ("Offset commits", "Commits by result. Alert: SekaliOffsetCommitsFailing.", "ops",
         [(total("sekali_offset_commits_total", "result", GROUP), "{{result}}")]),
        ("Since the last commit", "Time since the last successful offset commit.", "s",
         [(f"time() - max by (pod, instance) (sekali_last_commit_timestamp_seconds{{{GROUP}}} > 0)", "{{pod}} {{instance}}")]),
        ("Since the last poll", "Time since the poll loop last turned, and the limit.", "s",
         [(f"time() - max by (pod, instance) (sekali_last_poll_timestamp_seconds{{{GROUP}}})", "{{pod}} {{instance}}"),
          (f"max(sekali_max_poll_interval_seconds{{{GROUP}}})", "limit")]),
        ("Errors of the client", "Errors that the Kafka client reported.", "ops",
         [(total("sekali_kafka_errors_total", "fatal", GROUP), "fatal: {{fatal}}")]),
        ("Clients made anew", "In the last hour. Alert: SekaliKafkaClientsRenewed.", "short",
         [(f"sum by (consumer_group) (increase(sekali_kafka_clients_renewed_total{{{GROUP}}}[1h]))", "{{consumer_group}}")]),
    ]),
    ("Leases and locks", [
        ("Leases held", "Leases on messages whose effect is in progress or not yet recorded.", "short",
         [(f"sum by (consumer_group) (sekali_leases_held{{{GROUP}}})", "{{consumer_group}}")]),
        ("Leases taken over", "Leases that ran out: their effects are performed again. Alert: SekaliLeasesExpiring.", "ops",
         [(total("sekali_lease_expirations_total", "consumer_group", GROUP), "{{consumer_group}}")]),
        ("Heartbeats of leases", "Prolonged, lost, failed.", "ops",
         [(total("sekali_lease_renewals_total", "result", GROUP), "{{result}}")]),
        ("Effects", "Time of effects outside the database.", "s", quantiles("sekali_effect_duration_seconds")),
        ("Effects by result", "ok, failed, interrupted, lost. Alert: SekaliEffectReceiverAway.", "ops",
         [(total("sekali_effect_duration_seconds_count", "result"), "{{result}}")]),
        ("Late holders refused", "Writes refused because another holder had taken over.", "ops",
         [(total("sekali_fenced_total", "consumer_group", GROUP), "{{consumer_group}} leases"),
          (total("sekali_lock_fenced_total", "consumer_group", GROUP), "{{consumer_group}} locks")]),
        ("Named locks asked for", "By result; contended is one that was still taken after the wait.", "ops",
         [(total("sekali_lock_acquisitions_total", "result", GROUP), "{{result}}")]),
        ("Named locks held", "Locks that processes have now.", "short",
         [(f"sum by (consumer_group) (sekali_locks_held{{{GROUP}}})", "{{consumer_group}}")]),
        ("Wait for named locks", "From asking to having.", "s", quantiles("sekali_lock_wait_seconds", GROUP)),
        ("Named locks had for", "From having to giving back.", "s", quantiles("sekali_lock_hold_seconds", GROUP)),
        ("Named locks lost or taken over", "Lost by their holder; taken over from one that let them run out.", "ops",
         [(total("sekali_lock_losses_total", "reason", GROUP), "lost: {{reason}}"),
          (total("sekali_lock_expirations_total", "consumer_group", GROUP), "taken over")]),
        ("Heartbeats of named locks", "By result.", "ops",
         [(total("sekali_lock_renewals_total", "result", GROUP), "{{result}}")]),
    ]),
    ("Database, inbox, outbox", [
        ("Transactions", "Committed and rolled back.", "ops",
         [(total("sekali_db_transactions_total", "result", GROUP), "{{result}}")]),
        ("Rolled back, by class", "Transactions that failed, by class of the failure.", "ops",
         [(total("sekali_batch_failures_total", "error_class", GROUP), "{{error_class}}")]),
        ("Pool", "Connections in use, and the most that there may be.", "short",
         [(f"sum by (pod, instance) (sekali_db_pool_connections{{{GROUP},state=\"in_use\"}})", "{{pod}} {{instance}}"),
          (f"max(sekali_db_pool_max_connections{{{GROUP}}})", "limit of a process")]),
        ("Inbox rows", "Rows of all consumers, as PostgreSQL estimates them.", "short",
         [(most("sekali_inbox_rows", "namespace", GROUP), "{{namespace}}")]),
        ("Decisions forgotten", "Decisions older than inbox.retention that were purged.", "ops",
         [(total("sekali_inbox_purged_total", "consumer_group", GROUP), "{{consumer_group}}")]),
        ("Inbox clock", "How far the group's own clock is behind. Alert: SekaliInboxClockBehind.", "s",
         [(f"time() - min by (consumer_group) (sekali_inbox_clock_timestamp_seconds{{{GROUP}}} > 0)", "{{consumer_group}}")]),
        ("Keys", "Keys that wait, and how long the oldest has. Alert: SekaliHeldKeysOld.", "short",
         [(most("sekali_held_keys", "consumer_group, topic"), "{{consumer_group}} {{topic}}")]),
        ("Oldest waiting key", "How long the key has waited that has waited longest.", "s",
         [(most("sekali_hold_oldest_age_seconds", "consumer_group, topic"), "{{consumer_group}} {{topic}}")]),
        ("Keys with two contents", "Messages whose key was decided with another payload, in an hour.", "short",
         [(f"sum by (topic) (increase(sekali_key_reuse_total{{{TOPIC}}}[1h]))", "{{topic}}")]),
        ("Outbox: leader", "Which process publishes.", "short",
         [(f"sum by (outbox, pod, instance) (sekali_outbox_leader{{{OUTBOX}}})", "{{outbox}} {{pod}} {{instance}}")]),
        ("Outbox: a page", "From handing a page to Kafka until its last record is decided.", "s",
         quantiles("sekali_outbox_publish_duration_seconds", OUTBOX)),
        ("Outbox: size", "On disk, with its index.", "bytes",
         [(most("sekali_outbox_bytes", "namespace, outbox", OUTBOX), "{{namespace}} {{outbox}}")]),
        ("Outbox: dead rows", "Published rows that are not cleaned up. Alert: SekaliOutboxBloated.", "short",
         [(most("sekali_outbox_dead_rows", "namespace, outbox", OUTBOX), "{{namespace}} {{outbox}}")]),
        ("Oldest transaction", "Age of the oldest open transaction of the database. Alert: SekaliOutboxHorizonOld.", "s",
         [(most("sekali_outbox_horizon_age_seconds", "namespace, outbox", OUTBOX), "{{namespace}} {{outbox}}")]),
    ]),
    ("Processes", [
        ("CPU", "Seconds of CPU a second.", "short",
         [(f"rate(process_cpu_seconds_total{{{GROUP}}}[{RATE}])", "{{pod}} {{instance}}")]),
        ("Memory", "Resident memory.", "bytes",
         [(f"process_resident_memory_bytes{{{GROUP}}}", "{{pod}} {{instance}}")]),
        ("Open files", "File descriptors.", "short", [(f"process_open_fds{{{GROUP}}}", "{{pod}} {{instance}}")]),
        ("Started", "Starts in the last hour. Alert: SekaliCrashLooping.", "short",
         [(f"changes(process_start_time_seconds{{{GROUP}}}[1h])", "{{pod}} {{instance}}")]),
        ("Panics and shutdowns", "Handlers that panicked, and ends of processes, in the last hour.", "short",
         [(f"sum(increase(sekali_worker_panics_total{{{GROUP}}}[1h]))", "panics"),
          (f"sum by (mode) (increase(sekali_shutdowns_total{{{GROUP}}}[1h]))", "{{mode}}")]),
    ]),
]

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def panel(number, x, y, title, description, unit, queries, kind="timeseries"):
    targets = [
        {"datasource": DATASOURCE, "expr": expr, "legendFormat": legend, "refId": chr(65 + index), "range": True}
        for index, (expr, legend) in enumerate(queries)
    ]
    options = {
        "timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"},
    }
    return {
        "id": number, "type": kind, "title": title, "description": description, "datasource": DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": 8, "h": 7}, "targets": targets, "options": options[kind],
        "fieldConfig": {"defaults": {"unit": unit, "min": 0} if unit != "s" else {"unit": unit}, "overrides": []},
    }


def variable(name, label, query):
    return {
        "name": name, "label": label, "type": "query", "datasource": DATASOURCE, "query": {"query": query, "refId": name},
        "definition": query, "refresh": 2, "multi": True, "includeAll": True, "allValue": ".*",
        "current": {"text": "All", "value": "$__all"}, "sort": 1,
    }


def dashboard(uid, title, description, rows, links):
    panels, number, y = [], 1, 0
    for name, entries in rows:
        panels.append({"id": number, "type": "row", "title": name, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        number, y = number + 1, y + 1
        for index, entry in enumerate(entries):
            panels.append(panel(number, 8 * (index % 3), y + 7 * (index // 3), *entry))
            number += 1
        y += 7 * ((len(entries) + 2) // 3)
    source = {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus", "refresh": 1}
    variables = [
        source,
        variable("namespace", "Namespace", "label_values(sekali_build_info, namespace)"),
        variable("consumer_group", "Group", 'label_values(sekali_build_info{namespace=~"$namespace"}, consumer_group)'),
        variable("topic", "Topic", f"label_values(sekali_topic_partitions{{{GROUP}}}, topic)"),
    ]
    return {
        "uid": uid, "id": None, "title": title, "description": description, "tags": ["sekali"], "schemaVersion": 39,
        "editable": False, "refresh": "30s", "time": {"from": "now-3h", "to": "now"}, "timezone": "browser",
        "templating": {"list": variables}, "links": links, "panels": panels,
    }


def link(title, uid):
    return {"title": title, "type": "link", "url": f"/d/{uid}", "keepTime": True, "includeVars": True}


def main():
    boards = {
        "overview.json": dashboard("sekali-overview", "Sekali: Overview", "Lag, failures, outbox.", OVERVIEW,
                                   [link("Internals", "sekali-internals")]),
        "internals.json": dashboard("sekali-internals", "Sekali: Internals", "What happens inside.", INTERNALS,
                                    [link("Overview", "sekali-overview")]),
    }
    stale = []
    for name, board in boards.items():
        text = json.dumps(board, indent=1) + "\n"
        for path in (HERE / name, CHART / name):
            if "--check" in sys.argv[1:]:
                if not path.exists() or path.read_text() != text:
                    stale.append(str(path))
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    if stale:
        sys.exit(f"run ops/grafana/build.py: {', '.join(stale)} differ")


if __name__ == "__main__":
    main()
