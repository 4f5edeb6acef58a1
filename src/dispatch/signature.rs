//! Signatures of HTTP callbacks, after the Standard Webhooks specification.
//!
//! What is signed is `id.timestamp.body`, by HMAC-SHA256, once with each secret: a receiver that knows any of them
//! accepts, so a secret is rotated by adding the new one, moving the receivers over, and removing the old one.
//! Secrets never appear in errors, logs or `Debug`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Shortest secret, in bytes after decoding.
pub const SECRET_BYTES_MIN: usize = 16;
/// Longest secret, in bytes after decoding.
pub const SECRET_BYTES_MAX: usize = 512;
/// Most secrets of one handler.
pub const SECRETS_MAX: usize = 8;
/// Most signatures looked at in one header.
const SIGNATURES_MAX: usize = 32;

/// A signing secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// Why a text is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// `whsec_` is followed by something that is not base64.
    #[error("starts with \"whsec_\" but what follows is not base64")]
    NotBase64,
    /// Too few or too many bytes.
    #[error("must have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")]
    Length,
}

impl Secret {
    /// Takes `whsec_` and base64, or any other text as the bytes it is; 16 to 512 bytes.
    ///
    /// # Errors
    /// The text is not base64 after `whsec_`, or has too few or too many bytes.
    pub fn parse(text: &str) -> Result<Secret, SecretError> {
        let bytes = match text.strip_prefix("whsec_") {
            Some(encoded) => STANDARD.decode(encoded).map_err(|_| SecretError::NotBase64)?,
            None => text.as_bytes().to_vec(),
        };
        if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            Ok(Secret(bytes))
        } else {
            Err(SecretError::Length)
        }
    }

    fn mac(&self, id: &str, timestamp_s: i64, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(format!("{id}.{timestamp_s}.").as_bytes());
        mac.update(body);
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The value of `webhook-signature`: one `v1,<base64>` for each secret, in their order, separated by spaces.
pub fn sign(secrets: &[Secret], id: &str, timestamp_s: i64, body: &[u8]) -> String {
    let signatures: Vec<String> = secrets
        .iter()
        .map(|secret| {
            format!("v1,{}", STANDARD.encode(secret.mac(id, timestamp_s, body).finalize().into_bytes()))
        })
        .collect();
    signatures.join(" ")
}

/// The headers of a callback that are needed to verify it.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// `webhook-id`.
    pub id: &'a str,
    /// `webhook-timestamp`.
    pub timestamp: &'a str,
    /// `webhook-signature`.
    pub signature: &'a str,
    /// The body, byte for byte.
    pub body: &'a [u8],
}

/// Why a callback is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The timestamp is not a whole number of seconds.
    #[error("webhook-timestamp is not a whole number of seconds")]
    Timestamp,
    /// The timestamp lies too far from now, in either direction.
    #[error("webhook-timestamp is too far from now")]
    Stale,
    /// No signature was made with any of the secrets.
    #[error("no signature matches")]
    NoMatch,
}

/// Verifies a callback on the receiving side: right signature by any of the secrets, at most `tolerance_s` seconds
/// from `now_s`. Signatures are compared in constant time.
///
/// # Errors
/// Says which of the three checks failed.
pub fn verify(
    secrets: &[Secret],
    signed: Signed<'_>,
    now_s: i64,
    tolerance_s: u64,
) -> Result<(), VerifyError> {
    let timestamp_s: i64 = signed.timestamp.parse().map_err(|_| VerifyError::Timestamp)?;
    if timestamp_s.abs_diff(now_s) > tolerance_s {
        return Err(VerifyError::Stale);
    }
    let given = signed.signature.split(' ').take(SIGNATURES_MAX).filter_map(|text| text.strip_prefix("v1,"));
    for signature in given.filter_map(|text| STANDARD.decode(text).ok()) {
        for secret in secrets {
            if secret.mac(signed.id, timestamp_s, signed.body).verify_slice(&signature).is_ok() {
                return Ok(());
            }
        }
    }
    Err(VerifyError::NoMatch)
}

#[cfg(test)]
mod tests {
    use super::{Secret, SecretError, Signed, VerifyError, sign, verify};

    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const AT: i64 = 1_614_265_330;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn known() -> Secret {
        Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret")
    }

    fn other() -> Secret {
        Secret::parse("another secret of raw bytes").expect("a secret")
    }

    fn signed(signature: &str) -> Signed<'_> {
        Signed { id: ID, timestamp: "1614265330", signature, body: BODY }
    }

    #[test]
    fn the_known_vector_of_the_specification_comes_out() {
        assert_eq!(sign(&[known()], ID, AT, BODY), SIGNATURE);
        assert_eq!(verify(&[known()], signed(SIGNATURE), AT, 0), Ok(()));
    }

    #[test]
    fn either_secret_verifies_while_they_are_rotated() {
        let both = sign(&[known(), other()], ID, AT, BODY);
        assert!(both.starts_with(SIGNATURE) && both.split(' ').count() == 2, "{both}");
        for secret in [known(), other()] {
            assert_eq!(verify(&[secret], signed(&both), AT, 0), Ok(()));
        }
    }

    #[test]
    fn a_changed_callback_is_not_believed() {
        let changed = [
            Signed { id: "msg_x", ..signed(SIGNATURE) },
            Signed { timestamp: "1614265331", ..signed(SIGNATURE) },
            Signed { body: b"{}", ..signed(SIGNATURE) },
            signed("v1,AAAA"),
            signed("v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
            signed(""),
        ];
        for (index, callback) in changed.into_iter().enumerate() {
            assert_eq!(verify(&[known()], callback, AT, 5), Err(VerifyError::NoMatch), "{index}");
        }
        assert_eq!(verify(&[other()], signed(SIGNATURE), AT, 0), Err(VerifyError::NoMatch));
    }

    #[test]
    fn an_old_or_future_callback_is_not_believed() {
        for now in [AT - 301, AT + 301] {
            assert_eq!(verify(&[known()], signed(SIGNATURE), now, 300), Err(VerifyError::Stale));
        }
        let callback = Signed { timestamp: "yesterday", ..signed(SIGNATURE) };
        assert_eq!(verify(&[known()], callback, AT, 300), Err(VerifyError::Timestamp));
    }

    #[test]
    fn a_bad_secret_is_refused_and_a_good_one_never_shown() {
        assert_eq!(Secret::parse("whsec_***"), Err(SecretError::NotBase64));
        assert_eq!(Secret::parse("short"), Err(SecretError::Length));
        assert_eq!(Secret::parse(&"x".repeat(513)), Err(SecretError::Length));
        assert_eq!(format!("{:?}", known()), "Secret(…)");
    }
}
