//! Values of fields as they are written: texts, numbers, hashes. Texts are borrowed both ways.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A text, borrowed where it has no escapes.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Text(Cow::Borrowed(text))
    }
}

pub(super) fn text(arc: &Arc<str>) -> Text<'_> {
    Text(Cow::Borrowed(arc))
}

pub(super) fn arc(text: Text<'_>) -> Arc<str> {
    Arc::from(text.0)
}

/// A number that reads back to the very bits that were written.
#[derive(Clone, Copy)]
pub(super) struct Exact(pub(super) f64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let number = raw.get().parse().ok().filter(|number: &f64| number.is_finite());
        number.map(Exact).ok_or_else(|| serde::de::Error::custom("expected a finite number"))
    }
}

/// Sixteen bytes, written as hexadecimal.
#[derive(Clone, Copy)]
pub(super) struct Hash(pub(super) [u8; 16]);

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", u128::from_be_bytes(self.0)))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        let digits = text.0.len() == 32 && text.0.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(&text.0, 16).ok()).flatten();
        let number = number.ok_or_else(|| serde::de::Error::custom("expected 32 hexadecimal digits"))?;
        Ok(Hash(number.to_be_bytes()))
    }
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(super) fn base64_of(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn bytes_of(base64: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(base64).map_err(|why| format!("not base64: {why}"))
}

pub(super) fn unknown_word(field: &str, word: &Text<'_>) -> String {
    format!("no {field} is called {:?}", word.0)
}
