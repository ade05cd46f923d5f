//! Where the programs of PostgreSQL are on this machine.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

use super::has_programs;

/// Environment variable that names a directory with `initdb` and `postgres`, before every other place.
pub const BINARIES_VARIABLE: &str = "SEKALI_POSTGRES_BIN";

/// The distribution keeps one directory a major version here, none of them on the search path.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Finds a directory with `initdb` and `postgres`: [`BINARIES_VARIABLE`], then the search path, then the
/// distribution's directories, newest version first.
///
/// # Errors
/// There is none; the error names the packages to install.
pub fn find_binaries() -> Result<PathBuf, anyhow::Error> {
    if let Some(dir) = std::env::var_os(BINARIES_VARIABLE) {
        let dir = PathBuf::from(dir);
        ensure!(has_programs(&dir), "{BINARIES_VARIABLE} names {}, which has no initdb and postgres", dir.display());
        return Ok(dir);
    }
    match search(&std::env::var_os("PATH").unwrap_or_default(), Path::new(DEBIAN)) {
        Some(dir) => Ok(dir),
        None => bail!(
            "no PostgreSQL server on this machine; install it (Debian, Ubuntu: apt-get install postgresql; \
             Fedora: dnf install postgresql-server; macOS: brew install postgresql) or set {BINARIES_VARIABLE} to the \
             directory of initdb and postgres"
        ),
    }
}

fn search(path: &OsStr, debian: &Path) -> Option<PathBuf> {
    std::env::split_paths(path).chain(versions(debian)).find(|it| has_programs(it))
}

fn versions(debian: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(debian).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> =
        entries.filter_map(|it| Some((it.file_name().to_str()?.parse().ok()?, it.path().join("bin")))).collect();
    versions.sort_by_key(|(version, _)| Reverse(*version));
    versions.into_iter().map(|(_, dir)| dir).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(dir: &Path) {
        std::fs::create_dir_all(dir).unwrap();
        for program in ["initdb", "postgres"] {
            std::fs::write(dir.join(program), "").unwrap();
        }
    }

    #[test]
    fn prefers_the_search_path_then_the_newest_version() {
        let root = tempfile::tempdir().unwrap();
        let debian = root.path().join("postgresql");
        assert_eq!(search(OsStr::new(""), &debian), None);
        for version in ["9", "17", "15"] {
            install(&debian.join(version).join("bin"));
        }
        std::fs::create_dir_all(debian.join("18/bin")).unwrap();
        assert_eq!(search(OsStr::new(""), &debian), Some(debian.join("17/bin")), "18 has clients only");

        let on_path = root.path().join("own");
        install(&on_path);
        let path = std::env::join_paths([root.path().join("none"), on_path.clone()]).unwrap();
        assert_eq!(search(&path, &debian), Some(on_path));
    }
}
