//! Texts for the keys of the producer's sections. A test keeps the names in step.

use crate::config::Docs;

pub(crate) const KAFKA: Docs = Docs {
    about: &["Brokers and how to log in."],
    keys: &[
        ("brokers", &["Addresses to start from, host:port, several separated by commas. Required."]),
        ("client_id", &["Name of this program in the broker's logs, metrics and quotas."]),
        (
            "security_protocol",
            &[
                "\"plaintext\", \"ssl\", \"sasl_plaintext\" or \"sasl_ssl\". Without encryption the network reads",
                "along.",
            ],
        ),
        ("sasl_mechanism", &["\"PLAIN\", \"SCRAM-SHA-256\" or \"SCRAM-SHA-512\"; needed with a sasl protocol."]),
        ("sasl_username", &["User of the login."]),
        ("sasl_password", &["Password of the login; better in a file."]),
        ("sasl_password_file", &["File that holds the password."]),
        (
            "ssl_ca_file",
            &[
                "PEM file of the authority that signed the brokers' certificates; by default those that the system",
                "trusts.",
            ],
        ),
        ("properties", &["Anything else for librdkafka by its own names, except what carries the guarantee."]),
    ],
};

pub(crate) const POSTGRES: Docs = Docs {
    about: &["The database that holds your tables and schema sekali."],
    keys: &[
        ("url", &["postgres://user@host:5432/database. Required, here or in a file."]),
        ("url_file", &["File that holds the URL."]),
        ("password", &["Password, when it is not part of the URL; better in a file."]),
        ("password_file", &["File that holds the password."]),
        (
            "pool_max_connections",
            &[
                "Connections of this process at most, at least consumer.executors + 4. Fewer wait for each other;",
                "more use up the server's max_connections over all processes.",
            ],
        ),
        (
            "connect_timeout",
            &[
                "Longest wait for a new connection. Shorter takes a loaded server for a dead one, longer notices a",
                "dead one late.",
            ],
        ),
        ("acquire_timeout", &["Longest wait for a free connection of the pool."]),
        (
            "statement_timeout",
            &[
                "Longest run of one statement, wait for a lock, and idle time inside a transaction. Shorter fails",
                "batches on a slow disk, longer lets a stuck statement keep its locks.",
            ],
        ),
    ],
};

pub(crate) const RELAY: Docs = Docs {
    about: &["The loop that publishes the outbox: retries, dead letters and what your handlers enqueue."],
    keys: &[
        (
            "embedded",
            &[
                "Whether every worker takes part. When false, run the relay yourself, or nothing that is enqueued reaches",
                "Kafka.",
            ],
        ),
        (
            "lease_ttl",
            &[
                "How long a leader that vanished is waited for. Shorter loses the lease to a slow database and",
                "publishes twice, longer publishes nothing for that time after a crash.",
            ],
        ),
        (
            "poll_busy",
            &[
                "Pause between two looks at the outbox while there is traffic. Shorter loads the database, longer",
                "delays records.",
            ],
        ),
        ("poll_idle", &["Longest pause when nothing comes."]),
        (
            "page_messages_max",
            &[
                "Records in flight between two advances of the cursor. Fewer cost round trips, more cost memory and",
                "repetitions after a crash.",
            ],
        ),
    ],
};

pub(crate) const SCHEMAS: Docs = Docs {
    about: &["JSON Schemas that payloads are held against."],
    keys: &[
        (
            "directory",
            &[
                "Directory with the schemas of your own event types, named <type>.v<major>.json. One of the same name and",
                "version as a built-in one takes its place.",
            ],
        ),
        (
            "consume",
            &[
                "Whether messages are held against the schema of their type before a handler gets them: \"off\", \"known\"",
                "(those whose type has a schema), \"strict\" (the others are refused). What is refused becomes a dead letter",
                "at once.",
            ],
        ),
        ("produce", &["The same for events that handlers enqueue; what is refused there is a failure of the handler."]),
    ],
};

pub(crate) const REGISTRY: Docs = Docs {
    about: &[
        "Schema registry: with one, the id of the schema before a payload is read and written (JSON Schema only). While it",
        "is away, consumption pauses.",
    ],
    keys: &[
        ("url", &["Address such as https://host:8081, without a login in it."]),
        ("user", &["User of the login."]),
        ("password", &["Password of the login; better in a file."]),
        ("password_file", &["File that holds the password."]),
        ("ca_file", &["PEM file of the authority that signed its certificate; Mozilla's list by default."]),
        (
            "timeout",
            &["Longest wait for an answer. Shorter takes a slow registry for one that is away, longer pauses later."],
        ),
        (
            "register",
            &["Whether a schema that is written is registered. When false it must be there, or publishing fails."],
        ),
        ("subject", &["Subject of a schema, with {topic} and, where one topic carries several types, {type}."]),
    ],
};
