//! What a connection to Cassandra needs, checked before anything is sent.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::store::Error;

/// Longest keyspace name that Cassandra takes, in bytes.
const KEYSPACE_BYTES_MAX: usize = 48;

/// Options of [`super::Cassandra::connect`] and [`super::migrate`].
#[derive(Clone)]
pub struct Options {
    /// Nodes to start from, `host:port`; the others are found.
    pub nodes: Vec<String>,
    /// The keyspace: lower case letters, digits and `_`, beginning with a letter, up to 48 bytes.
    pub keyspace: String,
    /// The data centre whose nodes coordinate; others do when none of them answers.
    pub local_dc: String,
    /// User and password.
    pub credentials: Option<(String, String)>,
    /// Encryption; `None` = plain text.
    pub tls: Option<Tls>,
    /// How long one request may take, retries on other nodes included.
    pub request_timeout: Duration,
    /// A verification of ownership that is not answered for this long is sent to another node as well.
    pub owner_ask_again: Duration,
    /// Replication factor of each data centre: used when the keyspace is created, compared afterwards.
    pub replication: BTreeMap<String, u32>,
}

/// Files for encryption, all PEM. A node's certificate has to name its IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The authorities that sign node certificates.
    pub ca_file: PathBuf,
    /// This client's certificate chain and key, where nodes ask for them.
    pub client_files: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("nodes", &self.nodes)
            .field("keyspace", &self.keyspace)
            .field("local_dc", &self.local_dc)
            .field("user", &self.credentials.as_ref().map(|(user, _)| user))
            .field("tls", &self.tls)
            .field("request_timeout", &self.request_timeout)
            .field("owner_ask_again", &self.owner_ask_again)
            .field("replication", &self.replication)
            .finish()
    }
}

impl Options {
    /// Options with the defaults: no credentials, no encryption, 5 s per request, ownership asked again after 750 ms.
    pub fn new(nodes: Vec<String>, keyspace: &str, local_dc: &str) -> Options {
        Options {
            nodes,
            keyspace: keyspace.to_owned(),
            local_dc: local_dc.to_owned(),
            credentials: None,
            tls: None,
            request_timeout: Duration::from_secs(5),
            owner_ask_again: Duration::from_millis(750),
            replication: BTreeMap::new(),
        }
    }

    /// Checks what can be checked without a server.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] names the option and what is wrong with it.
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Misconfigured(what));
        if self.nodes.is_empty() || self.nodes.iter().any(|node| node.trim().is_empty()) {
            return wrong("cassandra.nodes: at least one host:port is needed, none may be empty".into());
        }
        if !is_keyspace(&self.keyspace) {
            return wrong(format!(
                "cassandra.keyspace {:?}: lower case letters, digits and _ only, beginning with a letter, up to 48",
                self.keyspace
            ));
        }
        if self.local_dc.is_empty() {
            return wrong("cassandra.local_dc: the name of this instance's data centre is needed".into());
        }
        if self.request_timeout.is_zero() || self.owner_ask_again.is_zero() {
            return wrong("cassandra: a timeout of 0 lets no request pass".into());
        }
        for (dc, factor) in &self.replication {
            let named = !dc.is_empty() && dc.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            if !named || !(1..=100).contains(factor) {
                return wrong(format!(
                    "cassandra.replication: {dc:?} = {factor}: a data centre and 1 to 100"
                ));
            }
        }
        Ok(())
    }
}

fn is_keyspace(name: &str) -> bool {
    name.len() <= KEYSPACE_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] names the file that cannot be read or used.
    pub fn read(&self) -> Result<Arc<ClientConfig>, Error> {
        let wrong = |file: &PathBuf, why: String| Error::Misconfigured(format!("{}: {why}", file.display()));
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca_file)? {
            roots.add(certificate).map_err(|why| wrong(&self.ca_file, why.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|why| Error::Misconfigured(format!("TLS: {why}")))?
            .with_root_certificates(roots);
        let config = match &self.client_files {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let der = PrivateKeyDer::from_pem_file(key).map_err(|why| wrong(key, why.to_string()))?;
                builder
                    .with_client_auth_cert(certificates(chain)?, der)
                    .map_err(|why| wrong(chain, why.to_string()))?
            }
        };
        Ok(Arc::new(config))
    }
}

fn certificates(file: &PathBuf) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |why: String| Error::Misconfigured(format!("{}: {why}", file.display()));
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).map_err(|why| wrong(why.to_string()))?.collect();
    match found {
        Ok(found) if found.is_empty() => Err(wrong("holds no certificate".into())),
        Ok(found) => Ok(found),
        Err(why) => Err(wrong(why.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        let mut options = Options::new(vec!["127.0.0.1:9042".into()], "dueline_1", "dc1");
        options.replication.insert("dc-1".into(), 3);
        options
    }

    #[test]
    fn options_that_cannot_work_are_refused_by_name() {
        assert!(options().check().is_ok());
        let long = "x".repeat(49);
        for keyspace in ["", "1a", "A", "a-b", "a\"; DROP", "ä", &long] {
            let error = Options { keyspace: keyspace.into(), ..options() }.check().expect_err("refused");
            assert!(error.to_string().contains("cassandra.keyspace"), "{error}");
        }
        for options in [
            Options { nodes: vec![], ..options() },
            Options { nodes: vec![" ".into()], ..options() },
            Options { local_dc: String::new(), ..options() },
            Options { request_timeout: Duration::ZERO, ..options() },
            Options { replication: BTreeMap::from([("dc'1".into(), 3)]), ..options() },
            Options { replication: BTreeMap::from([("dc1".into(), 0)]), ..options() },
        ] {
            assert!(matches!(options.check(), Err(Error::Misconfigured(_))), "{options:?}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let options = Options { credentials: Some(("me".into(), "s3cret".into())), ..options() };
        assert!(!format!("{options:?}").contains("s3cret"));
    }

    #[test]
    fn a_missing_certificate_file_is_named() {
        let tls = Tls { ca_file: "/nowhere/ca.pem".into(), client_files: None };
        assert!(tls.read().expect_err("refused").to_string().contains("/nowhere/ca.pem"));
    }
}
