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
        (
            "sasl_mechanism",
            &["\"PLAIN\", \"SCRAM-SHA-256\", \"SCRAM-SHA-512\" or \"OAUTHBEARER\"; needed with a sasl protocol."],
        ),
        ("sasl_username", &["User of the login."]),
        ("sasl_password", &["Password of the login; better in a file."]),
        ("sasl_password_file", &["File that holds the password."]),
        (
            "oauth_token_file",
            &[
                "File with a JWT for OAUTHBEARER, which somebody renews before it runs out. Read again after four fifths of",
                "each token's life.",
            ],
        ),
        (
            "ssl_ca_file",
            &[
                "PEM file of the authority that signed the brokers' certificates; by default those that the system",
                "trusts.",
            ],
        ),
        (
            "ssl_certificate_file",
            &["PEM file of the certificate to show the brokers, with those between it and the authority."],
        ),
        ("ssl_key_file", &["PEM file of its private key."]),
        ("ssl_key_password", &["Password of the private key, if it has one; better in a file."]),
        ("ssl_key_password_file", &["File that holds that password."]),
        ("compression", &["\"none\", \"gzip\", \"snappy\", \"lz4\" or \"zstd\": how records are sent and stored."]),
        (
            "linger",
            &[
                "How long a record waits for others to share a request with; 5ms when not given, and 20ms for sekali",
                "produce. Shorter costs requests, longer delays records.",
            ],
        ),
        (
            "message_bytes_max",
            &["Largest record that is sent, in bytes, with headers; when not given, what retry topics take."],
        ),
        (
            "batch_bytes_max",
            &[
                "Most bytes that share a batch, 1000000 when not given. A topic's max.message.bytes is about batches, too.",
            ],
        ),
        ("properties", &["Anything else for librdkafka by its own names, except what carries the guarantee."]),
    ],
};

pub(crate) const POSTGRES: Docs = Docs {
    about: &["The database that holds your tables and schema sekali."],
    keys: &[
        (
            "url",
            &[
                "postgres://user@host:5432/database?sslmode=verify-full. Required, here or in a file. sslmode is disable,",
                "prefer (when it is not given), require, verify-ca or verify-full; only the last one keeps out somebody in",
                "the middle.",
            ],
        ),
        ("url_file", &["File that holds the URL."]),
        ("password", &["Password, when it is not part of the URL; better in a file."]),
        ("password_file", &["File that holds the password."]),
        (
            "ssl_root_cert_file",
            &[
                "PEM file of the authorities that may have signed the server's certificate; by default those that the",
                "system trusts. With it, sslmode=require checks the certificate like verify-ca, as libpq does.",
            ],
        ),
        ("ssl_cert_file", &["PEM file of the certificate to show the server; read at start."]),
        ("ssl_key_file", &["PEM file of its private key, without a password."]),
        (
            "pool_max_connections",
            &[
                "Connections of this process at most, at least consumer.executors + 4. Fewer wait for each other;",
                "more use up the server's max_connections over all processes. The relay opens one beside them while it",
                "vacuums the outbox.",
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
                "Longest run of one statement and wait for a lock; a transaction may idle for five seconds more. Shorter",
                "fails batches on a slow disk, longer lets a stuck statement keep its locks.",
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
