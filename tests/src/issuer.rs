//! An issuer of tokens for tests. Its private keys stand here for everybody to read: nothing outside of tests may believe them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use serde_json::{Value, json};

/// A private key of no worth, PKCS #8.
const ES256_KEY: &str = concat!(
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg8NRjoU4KCjkc7CDzvX/y2IniyNYTPejFBVUxjWbDd36hRANCAASRN/4z6onpxh",
    "jQG7qkXSUhLbRLLSmbhCiWGwiBUb1+VVWYxo3vG3ywGT3VBfliRocO02zUK5pIpQzf5UKcWl81",
);
/// A private key of no worth, PKCS #1.
const RS256_KEY: &str = concat!(
    "MIIEowIBAAKCAQEAw9FsUxqAd0PkMIHcjdroxrsejf24sYYqP7m1EOoFoeBLBFFVp4KqNLg38OPuF4w5N6gIIGrrolyjJe1YzxHtzjj8i+qSem",
    "WfrcEPj9t/sfso2ONsOR7+3z6f0z4MNdrajL6pzEGZt8pZxN5329Cho35PBjGROhJb8ko8ERwmvem+nmF4K2nUu/Tb7njZlUwW8rOSBDj2hXTn",
    "pTwXX5KuYM3fplpojwlfr2a5Mbf14F9jL9T+hH29qw6qn+Wbh55o8Z1uSCZDZvN2E9gEp/Wx5eRv6EXvy3xKEI14VS+8ZMGLvQ7yGCOOsY9DoE",
    "ERlevRT/qkdcyS2YhqWUpHiPdPBwIDAQABAoIBAAiEvMSku3/0uSGPFKwrIMM8cqjUp8s5Pe9FweW5eINBQaIvc5105riiZvSYxcvKctbD/Y6D",
    "eDq48vP8bkebzQ+SlRH1I2glsZuacXXdo6F3fqBozFVzzryhecxzv448NhO3W6WiGPDQ4bTZxLcQTWfSX9eyIlI3aD6TEifgZKMQS5jRz13kyd",
    "S0UBL/dCnLgItqndNI87FlOlzlSOBuIMbdmdeyIy+ii2424VuEfDh4mjUP2e2Ldr0ygOnPn1/Y3yAAyAlOPkTukIo4HD5wccovIlo/yYxll26K",
    "RijfYg2o2NdfLx7RtrmIdxpjWRlJtk7K7dUeu5NiWNRVlo8wXDECgYEA5gYPn5P4JIKIpjFw7pMzqIjHHYrwIEhjYdjAzTIpPp3McFZCU7u02h",
    "P9KYvqyqLLxfMD9wEwBn2WX52aQghKaFf3+kNYrzrRYmVuwdydDM3rZY4Tb9VdnNXG5YmQgrrl+B8VD9QG2jZjbx5qCc4uUkhMS9fLepeqblhy",
    "Q3xSR/8CgYEA2e58CDVgSxK1gD0eQxKlvC6OVIQrYwC8D7W0sB48hX4Ct9bJEvXVum1SEuOu16WppHN+x6JtNRkQqXFo9vPEg/qKmf5QFhZUDJ",
    "toDVFvbohmii7ninNeWvejCtXmQhmotXMNgRwUTi9HbeMLmvvWUL3ClVAaWpqW8FvbQgbQuPkCgYEA02ogs+/hM1VSWUW54V0kLrPAJrQLbfB6",
    "f3UkB7Uh2W5Zd6qgfatZVtLmbWgvHZ2xIrfwHfdWd7C4JBuLq0NJeEvaHIgHm864ofJOcRnesuUUhRunW7NEviByFYhxbOZw9bNDvW+H+MnibE",
    "ANAAQj6PaQQWkOmReKyq66HrLGQWsCgYBMfuWSjAnM0DhdVxa0PGtobn8PM4V3Lt7UNNfDqhlcUirqFL5npVrsIUtZzgmlMEUnsFKkCGOE69Np",
    "ZqGNbWthWCQmgZni5tuBwVr4sckHZ2F2x5gGhRBtpdbZCtPUB+WsK0JmO1D1UKsl6zg7ooJLvQ/8ES3u96xbmiKQPowtIQKBgGv6M4hUBIpXbk",
    "qst/VenTUS1Jiun1QmdZbQn+eJmsUindCh7SdUIwWl/Yx3BzD7E8oUM2G97mdYRubndzzyqjCfwIv1f9Ix1L5nyrOFxoPD1kmBXm61D0MA8ovU",
    "KDjXMbw7xhtRBON1EDsUV3bacsYjNk+ZnTqkUC3+FBner0Ys",
);
/// What stands before the 32 bytes of an Ed25519 key in PKCS #8.
const ED25519_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// One key of the issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// Ed25519 with a seed of this byte, over and over.
    EdDsa(u8),
    /// P-256.
    Es256,
    /// RSA with 2,048 bits.
    Rs256,
}

impl Signer {
    /// One of each.
    pub const ALL: [Self; 3] = [Self::EdDsa(1), Self::Es256, Self::Rs256];

    /// The name of its algorithm.
    pub const fn alg(self) -> &'static str {
        match self {
            Self::EdDsa(_) => "EdDSA",
            Self::Es256 => "ES256",
            Self::Rs256 => "RS256",
        }
    }

    /// The name of the key.
    pub fn kid(self) -> String {
        match self {
            Self::EdDsa(seed) => format!("ed-{seed}"),
            Self::Es256 => "es".to_owned(),
            Self::Rs256 => "rs".to_owned(),
        }
    }

    const fn algorithm(self) -> Algorithm {
        match self {
            Self::EdDsa(_) => Algorithm::EdDSA,
            Self::Es256 => Algorithm::ES256,
            Self::Rs256 => Algorithm::RS256,
        }
    }

    #[allow(clippy::unwrap_used, reason = "the keys are constants")]
    fn key(self) -> EncodingKey {
        match self {
            Self::EdDsa(seed) => EncodingKey::from_ed_der(&[&ED25519_HEAD[..], &[seed; 32]].concat()),
            Self::Es256 => EncodingKey::from_ec_der(&STANDARD.decode(ES256_KEY).unwrap()),
            Self::Rs256 => EncodingKey::from_rsa_der(&STANDARD.decode(RS256_KEY).unwrap()),
        }
    }

    /// The public half, as a key set lists it.
    ///
    /// # Panics
    /// Never: the keys are constants.
    #[allow(clippy::unwrap_used, reason = "the keys are constants")]
    pub fn jwk(self) -> Value {
        let mut jwk = serde_json::to_value(Jwk::from_encoding_key(&self.key(), self.algorithm()).unwrap()).unwrap();
        jwk["kid"] = json!(self.kid());
        jwk["use"] = json!("sig");
        jwk
    }

    /// A token with this header and these claims, signed.
    pub fn sign(self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// The same over any text.
    ///
    /// # Panics
    /// Never: the keys are constants.
    #[allow(clippy::unwrap_used, reason = "the keys are constants")]
    pub fn sign_text(self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = crypto::sign(message.as_bytes(), &self.key(), self.algorithm()).unwrap();
        format!("{message}.{signature}")
    }

    /// A token with the header that belongs to the key.
    pub fn token(self, claims: &Value) -> String {
        self.sign(&json!({ "alg": self.alg(), "kid": self.kid(), "typ": "JWT" }), claims)
    }
}

/// The key set of these keys.
pub fn key_set(signers: &[Signer]) -> Value {
    json!({ "keys": signers.iter().map(|signer| signer.jwk()).collect::<Vec<_>>() })
}

/// Claims that are good until `exp`, in seconds since the Unix epoch: of [`ISSUER`], for [`AUDIENCE`].
pub fn claims(tenant: &str, subject: &str, role: &str, scope: &str, exp: i64) -> Value {
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": subject, "exp": exp, "tenant": tenant, "role": role, "scope": scope,
    })
}

/// Who issues.
pub const ISSUER: &str = "https://issuer.example";
/// For whom.
pub const AUDIENCE: &str = "signalbox";
