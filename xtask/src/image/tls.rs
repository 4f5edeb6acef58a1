//! Whom the program trusts in its container: the client of Kafka meets a server whose certificate it is to know from the
//! bundle of authorities alone.

use super::bundle::{Bundle, Run};
use super::check::Found;
use super::container::{Runtime, until};
use super::{debian, live};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What the server says of a client that went on.
const TRUSTED: &str = "Protocol version: TLS";
/// What it says of one that does not know who has signed its certificate.
const UNKNOWN: &str = "alert unknown ca";
/// How much of its log is told.
const TOLD_MAX: usize = 400;

/// With the image's own bundle the server is refused; with one that names it, it is not.
pub(super) fn check(runtime: &Runtime, bundle: &Bundle, dir: &Path, found: &mut Found) -> Result<()> {
    let dir = dir.join("tls");
    fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
    let certificate = dir.join("cert.pem");
    let mut make = Command::new("openssl");
    make.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=image"]);
    make.args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout"]).arg(dir.join("key.pem"));
    debian::output(make.arg("-out").arg(&certificate))?;
    let mounted = [(certificate.as_path(), debian::BUNDLE)];
    for (files, wanted, other) in [(&[][..], UNKNOWN, TRUSTED), (&mounted[..], TRUSTED, UNKNOWN)] {
        let server = Server::start(&dir)?;
        let broker = [
            format!("DUELINE_KAFKA_BROKERS={}", server.address),
            "DUELINE_KAFKA_LIBRDKAFKA_SECURITY_PROTOCOL=SSL".to_owned(),
            // Asked for by every configuration, and not by this command.
            "DUELINE_CASSANDRA_NODES=127.0.0.1".to_owned(),
        ];
        let mut container =
            runtime.start(bundle, &Run { args: &["topics", "check"], env: &broker, files })?;
        let mut heard = String::new();
        until("the server has heard of its client", || {
            heard = server.log()?;
            Ok(heard.contains(TRUSTED) || heard.contains(UNKNOWN) || container.ended()?.is_some())
        })?;
        let with = if files.is_empty() { "the image's bundle" } else { "a mounted bundle" };
        found.want(heard.contains(wanted) && !heard.contains(other), || {
            let told: String = heard.chars().take(TOLD_MAX).collect();
            format!("with {with} the server says {told:?}, the program {:?}", container.log())
        });
    }
    Ok(())
}

/// A server that speaks TLS and nothing else.
struct Server {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Server {
    fn start(dir: &Path) -> Result<Server> {
        let (address, log) = (live::free_address()?, dir.join("server.log"));
        let file = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
        let errors = file.try_clone().context("sharing the log between stdout and stderr")?;
        let mut command = Command::new("openssl");
        command.args(["s_server", "-brief", "-accept", &address, "-cert", "cert.pem", "-key", "key.pem"]);
        // Its input stays open: at its end it would end.
        command.current_dir(dir).stdin(Stdio::piped()).stdout(file).stderr(errors);
        let child = command.spawn().context("running openssl")?;
        let server = Server { child, address, log };
        until("openssl s_server accepts", || Ok(TcpStream::connect(&server.address).is_ok()))?;
        Ok(server)
    }

    fn log(&self) -> Result<String> {
        let bytes = fs::read(&self.log).with_context(|| format!("reading {}", self.log.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
