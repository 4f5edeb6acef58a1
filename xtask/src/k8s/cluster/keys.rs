//! Keys and certificates, by openssl.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DAYS: &str = "30";
const KEY: &str = "rsa:2048";

/// An authority in a folder of its own.
#[derive(Debug)]
pub(in crate::k8s) struct Authority(PathBuf);

/// A certificate with its key.
#[derive(Debug)]
pub(in crate::k8s) struct Certificate {
    pub(in crate::k8s) certificate: PathBuf,
    pub(in crate::k8s) key: PathBuf,
}

impl Authority {
    /// Makes it in a folder that is there.
    pub(in crate::k8s) fn make(dir: &Path, name: &str) -> Result<Authority> {
        let authority = Authority(dir.to_owned());
        let subject = format!("/CN={name}");
        let (key, certificate) = (dir.join("ca.key"), authority.certificate());
        openssl([
            "req".as_ref(),
            "-x509".as_ref(),
            "-newkey".as_ref(),
            KEY.as_ref(),
            "-nodes".as_ref(),
            "-days".as_ref(),
            DAYS.as_ref(),
            "-subj".as_ref(),
            subject.as_ref(),
            "-keyout".as_ref(),
            key.as_os_str(),
            "-out".as_ref(),
            certificate.as_os_str(),
        ])?;
        Ok(authority)
    }

    pub(in crate::k8s) fn certificate(&self) -> PathBuf {
        self.0.join("ca.crt")
    }

    /// Signs a certificate for a subject, as a server for an address when one is given.
    pub(in crate::k8s) fn sign(
        &self,
        name: &str,
        subject: &str,
        server: Option<Ipv4Addr>,
    ) -> Result<Certificate> {
        let path = |suffix: &str| self.0.join(format!("{name}.{suffix}"));
        let (key, request, certificate, about) = (path("key"), path("csr"), path("crt"), path("ext"));
        let extensions = match server {
            Some(address) => format!("subjectAltName=IP:{address}\nextendedKeyUsage=serverAuth\n"),
            None => "extendedKeyUsage=clientAuth\n".to_owned(),
        };
        fs::write(&about, extensions).with_context(|| format!("writing {}", about.display()))?;
        openssl([
            "req".as_ref(),
            "-newkey".as_ref(),
            KEY.as_ref(),
            "-nodes".as_ref(),
            "-subj".as_ref(),
            subject.as_ref(),
            "-keyout".as_ref(),
            key.as_os_str(),
            "-out".as_ref(),
            request.as_os_str(),
        ])?;
        let (own, own_key) = (self.certificate(), self.0.join("ca.key"));
        openssl([
            "x509".as_ref(),
            "-req".as_ref(),
            "-days".as_ref(),
            DAYS.as_ref(),
            "-CAcreateserial".as_ref(),
            "-in".as_ref(),
            request.as_os_str(),
            "-CA".as_ref(),
            own.as_os_str(),
            "-CAkey".as_ref(),
            own_key.as_os_str(),
            "-extfile".as_ref(),
            about.as_os_str(),
            "-out".as_ref(),
            certificate.as_os_str(),
        ])?;
        Ok(Certificate { certificate, key })
    }
}

/// A key alone.
pub(in crate::k8s) fn key(path: &Path) -> Result<()> {
    openssl(["genrsa".as_ref(), "-out".as_ref(), path.as_os_str(), "2048".as_ref()])
}

fn openssl<const N: usize>(args: [&OsStr; N]) -> Result<()> {
    let made = Command::new("openssl")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("running openssl: install the Debian package openssl")?;
    if !made.status.success() {
        bail!("openssl: {}", String::from_utf8_lossy(&made.stderr).trim());
    }
    Ok(())
}
