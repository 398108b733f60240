//! Certificates for tests, made on the spot: an authority, and what it signs for `localhost`.

#![allow(clippy::unwrap_used, reason = "for tests")]

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};

use crate::{ClientFiles, ServerFiles};

/// A year that no test lives to see.
const FAR: i32 = 2999;

/// An authority with a folder: `ca.pem` is its own certificate there, and `NAME.pem` and `NAME.key` are of whom it signs for.
pub struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// A new one, which has signed for `server`.
    pub fn new(folder: &Path) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { folder: folder.to_owned(), issuer };
        fs::write(authority.path("ca.pem"), authority.issuer.pem()).unwrap();
        authority.issue("server");
        authority
    }

    /// A file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Signs for a name, in place of whatever was signed for it before.
    pub fn issue(&self, name: &str) {
        self.issue_until(name, FAR);
    }

    /// The same, valid until the end of a year.
    pub fn issue_until(&self, name: &str, year: i32) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// What a server of this name is given.
    pub fn server(&self, name: &str) -> ServerFiles {
        ServerFiles { cert: self.path(&format!("{name}.pem")), key: self.path(&format!("{name}.key")), client_ca: None }
    }

    /// The same for one that asks for certificates of this authority.
    pub fn mutual(&self, name: &str) -> ServerFiles {
        ServerFiles { client_ca: Some(self.path("ca.pem")), ..self.server(name) }
    }

    /// What a client is given that trusts this authority, with the certificate of a name.
    pub fn client(&self, name: Option<&str>) -> ClientFiles {
        ClientFiles {
            ca: Some(self.path("ca.pem")),
            cert: name.map(|name| self.path(&format!("{name}.pem"))),
            key: name.map(|name| self.path(&format!("{name}.key"))),
        }
    }
}
