//! The migrations are embedded by a macro, which cargo does not see read them.

fn main() {
    println!("cargo::rerun-if-changed=sql");
}
