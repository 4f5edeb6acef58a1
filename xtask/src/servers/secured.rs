//! What the secured pair has and the plain one has not: TLS with certificates made at its first start, users with
//! passwords, and rights.
//!
//! ```text
//! RUN/tls/ca.crt, next-ca.crt                       two authorities: of today, and after a change
//! RUN/tls/good.pem, next.pem, expired.pem, other-name.pem   key and certificate of a server
//! RUN/tls/node.pem                                  the one of them that the servers show
//! RUN/tls/itself.crt                                its certificate, which the broker trusts as its own client
//! ```
//! A run is secured when it has that folder. Keys of the authorities are kept nowhere.

use super::state::{self, Run};
use super::{kafka, process};
use anyhow::{Context, Result};
use clap::ValueEnum;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The first byte of a TLS record that is part of a handshake.
const HANDSHAKE: u8 = 22;
/// Kafka's user who may do everything. Cassandra has its own: `cassandra`, with that password.
const ADMIN: (&str, &str) = ("admin", "the-admin-of-the-tests");
/// What the servers' certificates name.
const NAMES: [&str; 2] = ["127.0.0.1", "localhost"];

/// A certificate of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Certificate {
    /// Signed by `ca.crt`
    Good,
    /// Signed by `next-ca.crt`
    Next,
    /// Signed by `ca.crt`, and no longer valid
    Expired,
    /// Signed by `ca.crt`, for another server
    OtherName,
}

impl Certificate {
    const ALL: [Certificate; 4] =
        [Certificate::Good, Certificate::Next, Certificate::Expired, Certificate::OtherName];

    fn file(self) -> &'static str {
        match self {
            Certificate::Good => "good.pem",
            Certificate::Next => "next.pem",
            Certificate::Expired => "expired.pem",
            Certificate::OtherName => "other-name.pem",
        }
    }

    fn params(self) -> Result<CertificateParams> {
        let names = match self {
            Certificate::OtherName => vec!["another-server.example".to_owned()],
            _ => NAMES.map(str::to_owned).to_vec(),
        };
        let mut params = CertificateParams::new(names).context("the names of a certificate")?;
        params.distinguished_name.push(DnType::CommonName, "a server of the tests");
        if self == Certificate::Expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        Ok(params)
    }
}

/// The folder with what a secured pair shows and trusts.
#[derive(Debug, Clone)]
pub(crate) struct Secured {
    dir: PathBuf,
}

impl Secured {
    /// Of a run, when it is secured.
    pub(crate) fn of(run: &Run) -> Option<Secured> {
        let dir = run.join("tls");
        dir.join("node.pem").is_file().then_some(Secured { dir })
    }

    /// Makes a run a secured one, with certificates of its own, unless it is one.
    pub(crate) fn make(run: &Run) -> Result<Secured> {
        if let Some(secured) = Secured::of(run) {
            return Ok(secured);
        }
        let secured = Secured { dir: run.join("tls") };
        state::make_dir(&secured.dir)?;
        let (today, next) = (secured.authority("ca.crt")?, secured.authority("next-ca.crt")?);
        for certificate in Certificate::ALL {
            let issuer = if certificate == Certificate::Next { &next } else { &today };
            let key = KeyPair::generate().context("making a key")?;
            let signed = certificate.params()?.signed_by(&key, issuer).context("signing a certificate")?;
            secured.write(certificate.file(), &(key.serialize_pem() + &signed.pem()))?;
        }
        secured.show(Certificate::Good)?;
        Ok(secured)
    }

    /// What the servers show from their next start on.
    pub(crate) fn show(&self, certificate: Certificate) -> Result<()> {
        let file = self.dir.join(certificate.file());
        let pem = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let begin = pem.find("-----BEGIN CERT").with_context(|| format!("{} has none", file.display()))?;
        self.write("itself.crt", &pem[begin..])?;
        self.write("node.pem", &pem)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// An authority with a key that is never written down.
    fn authority(&self, file: &str) -> Result<Issuer<'static, KeyPair>> {
        let key = KeyPair::generate().context("making a key")?;
        let mut params = CertificateParams::new(Vec::new()).context("an authority")?;
        params.distinguished_name.push(DnType::CommonName, file.trim_end_matches(".crt"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).context("signing an authority")?;
        self.write(file, &certificate.pem())?;
        Ok(Issuer::new(params, key))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// The name of the broker's listener for clients.
    pub(super) const LISTENER: &'static str = "SASL_SSL";

    /// What Kafka's properties have more. The controller's listener stays plain: nobody but the node itself uses it.
    pub(super) fn kafka_properties(&self) -> String {
        let (dir, (user, password)) = (self.dir.display(), ADMIN);
        format!(
            "
sasl.enabled.mechanisms=SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required username=\"{user}\" password=\"{password}\";
ssl.keystore.type=PEM
ssl.keystore.location={dir}/node.pem
ssl.truststore.type=PEM
ssl.truststore.location={dir}/itself.crt
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{user};User:ANONYMOUS
"
        )
    }

    /// What the formatting of Kafka's data folder is told: users are kept there.
    pub(super) fn kafka_users() -> [String; 2] {
        let (user, password) = ADMIN;
        kafka::scram(user, password)
    }

    /// What Cassandra's settings have more. Rights are looked up again at once.
    pub(super) fn cassandra_yaml(&self) -> String {
        let dir = self.dir.display();
        format!(
            "
role_manager: CassandraRoleManager
permissions_validity: 100ms
roles_validity: 100ms
credentials_validity: 100ms
client_encryption_options:
  enabled: true
  optional: false
  require_client_auth: false
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
  keystore: {dir}/node.pem
"
        )
    }
}

/// Whether a server answers the first words of a TLS handshake; its certificate may be any.
pub(super) fn answers(at: SocketAddr) -> Result<bool> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("TLS")?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut tls = ClientConnection::new(Arc::new(config), ServerName::from(at.ip())).context("TLS")?;
    let mut stream = process::connect(at)?;
    tls.write_tls(&mut stream)?;
    let mut first = [0];
    stream.read_exact(&mut first)?;
    Ok(first == [HANDSHAKE])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_secured_once_and_keeps_its_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let run = Run::at(dir.path());
        assert!(Secured::of(&run).is_none());
        let secured = Secured::make(&run).unwrap();
        let shown = || fs::read(secured.dir().join("node.pem")).unwrap();
        let good = shown();
        secured.show(Certificate::Next).unwrap();
        assert_ne!(shown(), good);
        Secured::make(&run).unwrap();
        assert_ne!(shown(), good, "made once");
        let itself = fs::read_to_string(secured.dir().join("itself.crt")).unwrap();
        assert!(itself.starts_with("-----BEGIN CERT") && !itself.contains("PRIVATE"), "{itself}");
    }
}
