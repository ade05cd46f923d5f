//! Where things are: the workspace, its target directory, its programs.

use std::path::{Path, PathBuf};

/// Root of the workspace.
pub fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in a directory of the workspace")
}

/// The directory that holds `debug` or `release`, where results and caches go.
pub fn target_dir() -> PathBuf {
    profile_dir().parent().expect("a profile has a directory of its own under the target directory").to_owned()
}

/// A program of the workspace, as the present profile built it.
///
/// # Panics
/// It has not been built.
pub fn program(name: &str) -> PathBuf {
    let path = profile_dir().join(name);
    assert!(path.is_file(), "{} is missing: run `cargo build --workspace` first", path.display());
    path
}

/// Test executables lie in `deps`, beside the programs; programs themselves do not.
fn profile_dir() -> PathBuf {
    let program = std::env::current_exe().expect("the system knows the path of this program");
    let dir = program.parent().expect("a program lies in a directory");
    let is_deps = dir.file_name().is_some_and(|it| it == "deps" || it == "examples");
    if is_deps { dir.parent().expect("deps lies in the directory of the profile").to_owned() } else { dir.to_owned() }
}
