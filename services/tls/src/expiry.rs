//! Until when certificates hold: asked by whoever looks after a node, since nothing works the day after.

use std::path::Path;

use x509_parser::parse_x509_certificate;

use crate::TlsError;
use crate::files::Content;

/// When the first of the certificates in a file ends, in seconds since the Unix epoch.
///
/// # Errors
/// A file that cannot be read, or that holds no certificate.
pub fn expires_at(path: &Path) -> Result<i64, TlsError> {
    let malformed = || TlsError::Malformed { path: path.to_owned(), expected: "certificate" };
    let mut first = i64::MAX;
    for certificate in Content::read(path)?.certificates()? {
        let (_, parsed) = parse_x509_certificate(&certificate).map_err(|_| malformed())?;
        first = first.min(parsed.validity().not_after.timestamp());
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Authority;

    #[test]
    fn the_end_of_a_certificate_is_read_from_its_file() {
        let folder = tempfile::TempDir::new().unwrap();
        let authority = Authority::new(folder.path());
        authority.issue_until("old", 2001);
        let ends = expires_at(&authority.server("old").cert).unwrap();
        assert!((978_307_200..=1_009_843_200).contains(&ends), "{ends}");
        let nothing = folder.path().join("nothing.pem");
        std::fs::write(&nothing, "nothing").unwrap();
        assert_eq!(expires_at(&nothing).unwrap_err().code(), "tls-file-malformed");
    }
}
