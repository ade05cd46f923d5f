//! What this process is called in the tables.

use std::fs;

use sekali_schemas::control::clean;

const BYTES_MAX: usize = 100;

/// Host, which in a container is the pod's name, and number of the process.
pub(crate) fn process_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    let host = host.map(|it| clean(it.trim(), BYTES_MAX)).filter(|it| !it.is_empty());
    format!("{}:{}", host.as_deref().unwrap_or("unknown"), std::process::id())
}
