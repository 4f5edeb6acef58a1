//! What to do about a connection that does not come about.

use rustls::{CertificateError, Error as TlsError};
use scylla::errors::{
    BrokenConnectionErrorKind, ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError,
};

const AUTHORITY: &str =
    ": cassandra.tls.ca_file has to hold the authority that signed the node's certificate";
const DATES: &str = ": give the node a certificate that is valid today, and compare the clocks";
const NAME: &str =
    ": the node's certificate has to name the address that cassandra.nodes and the node itself give";
const NO_TLS: &str =
    ": the node speaks no TLS there: check its client_encryption_options, or leave out cassandra.tls";
const CLOSED: &str =
    ": the node closed the connection, as one that expects TLS does: check cassandra.nodes and cassandra.tls";
const CREDENTIALS: &str =
    ": check cassandra.username and cassandra.password_file, and that the role has LOGIN";
const CERTIFICATE: &str =
    ": check cassandra.tls against the node's certificate: openssl s_client -connect HOST:PORT";

/// In the words of an error's end; empty where nothing is known.
pub(super) fn todo(error: &ConnectionPoolError) -> &'static str {
    let ConnectionPoolError::Broken { last_connection_error } = error else { return "" };
    match last_connection_error {
        ConnectionError::IoError(error) => {
            error.get_ref().and_then(|inner| inner.downcast_ref()).map_or("", of_tls)
        }
        ConnectionError::ConnectionSetupRequestError(setup) => of_setup(&setup.error),
        _ => "",
    }
}

fn of_tls(error: &TlsError) -> &'static str {
    match error {
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer) => AUTHORITY,
        TlsError::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => DATES,
        TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => NAME,
        TlsError::InvalidMessage(_) => NO_TLS,
        _ => CERTIFICATE,
    }
}

fn of_setup(error: &ConnectionSetupRequestErrorKind) -> &'static str {
    match error {
        ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, _)
        | ConnectionSetupRequestErrorKind::MissingAuthentication => CREDENTIALS,
        ConnectionSetupRequestErrorKind::BrokenConnection(broken)
            if matches!(
                broken.downcast_ref::<BrokenConnectionErrorKind>(),
                Some(BrokenConnectionErrorKind::FrameHeaderParseError(_))
            ) =>
        {
            CLOSED
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn of(error: TlsError) -> &'static str {
        let error = Arc::new(std::io::Error::new(std::io::ErrorKind::InvalidData, error));
        todo(&ConnectionPoolError::Broken { last_connection_error: ConnectionError::IoError(error) })
    }

    #[test]
    fn each_fault_of_a_certificate_has_its_own_cure() {
        let certificate = |error| of(TlsError::InvalidCertificate(error));
        assert_eq!(certificate(CertificateError::UnknownIssuer), AUTHORITY);
        assert_eq!(certificate(CertificateError::Expired), DATES);
        assert_eq!(certificate(CertificateError::NotValidForName), NAME);
        assert_eq!(certificate(CertificateError::Revoked), CERTIFICATE);
        assert_eq!(of(TlsError::InvalidMessage(rustls::InvalidMessage::InvalidContentType)), NO_TLS);
        let other = Arc::new(std::io::Error::other("words"));
        let other = ConnectionPoolError::Broken { last_connection_error: ConnectionError::IoError(other) };
        assert_eq!(todo(&other), "");
    }
}
