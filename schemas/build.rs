//! The migrations are embedded by a macro that cargo cannot look into: a new file must rebuild the crate.

fn main() {
    println!("cargo::rerun-if-changed=sql");
}
