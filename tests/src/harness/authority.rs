//! A certificate authority of a test's own.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use sekali::private_postgres::unprivileged_user;
use tempfile::TempDir;

/// Issues certificates. Its files go with it.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    dir: TempDir,
}

/// PEM files of a certificate.
pub struct Issued {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key, readable for the user of a private PostgreSQL alone.
    pub key: PathBuf,
    /// Both in one file.
    pub both: PathBuf,
}

impl Authority {
    /// An authority that nobody knows yet.
    ///
    /// # Panics
    /// Its files cannot be written, as in every function here.
    pub fn new() -> Authority {
        let dir = tempfile::Builder::new().prefix("sekali-authority-").tempdir().expect("a directory can be made");
        // For servers that run as another user.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("the directory is ours");
        let mut params = CertificateParams::new(Vec::new()).expect("no names, none wrong");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.self_signed(&key).expect("it can sign itself");
        let authority = Authority { issuer: Issuer::new(params, key), dir };
        fs::write(authority.file(), certificate.pem()).expect("the file can be written");
        authority
    }

    /// PEM file of the authority's certificate.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("authority.pem")
    }

    /// Directory for further files that a server must read.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Issues a certificate to `name` (its common name), valid for these hosts: names or addresses.
    pub fn issue(&self, name: &str, hosts: &[&str]) -> Issued {
        let hosts: Vec<String> = hosts.iter().map(|it| (*it).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("the hosts are names or addresses");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("the authority can sign");
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        let file = |suffix: &str| self.dir.path().join(format!("{name}.{suffix}"));
        let issued = Issued { certificate: file("crt"), key: file("key"), both: file("pem") };
        fs::write(&issued.certificate, &certificate).expect("the file can be written");
        fs::write(&issued.both, format!("{key}{certificate}")).expect("the file can be written");
        fs::write(&issued.key, key).expect("the file can be written");
        // PostgreSQL refuses a key that others can read.
        fs::set_permissions(&issued.key, Permissions::from_mode(0o600)).expect("the file is ours");
        if let Ok(Some(user)) = unprivileged_user() {
            chown(&issued.key, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("root may give files away");
        }
        issued
    }
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}
