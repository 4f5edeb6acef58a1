//! The fields of a JSON object, each taken with its bounds; every refusal names the field by its JSON pointer.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::fault::{Fault, nearest, pointer, shown};
use crate::model::{NameError, RejectReason, Wall};
use crate::wire::time::{Round, parse_duration_ms, parse_time};

/// The members of an object, in the order of their names, and where it lies in the event.
pub(super) struct Fields<'a> {
    at: String,
    members: Vec<Member<'a>>,
}

type Member<'a> = (Cow<'a, str>, &'a RawValue);

impl<'a> Fields<'a> {
    /// Reads the object that an event consists of.
    pub(super) fn of_event(text: &'a str) -> Result<Self, Fault> {
        let members = serde_json::from_str::<Members<'a>>(text).map_err(|error| match error.classify() {
            Category::Data => {
                let detail = format!("is {}, not an object", kind_of(text.trim_start()));
                Fault::event(RejectReason::InvalidField, detail)
            }
            _ if text.starts_with('\u{feff}') => {
                Fault::event(RejectReason::NotJson, "is not JSON: it starts with a byte order mark")
            }
            _ => Fault::event(RejectReason::NotJson, format!("is not JSON: {error}")),
        })?;
        Fields::checked(members, String::new())
    }

    fn checked(members: Members<'a>, at: String) -> Result<Self, Fault> {
        let mut members = members.0;
        members.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        match members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            None => Ok(Fields { at, members }),
            Some(twice) => Err(Fault::invalid(pointer(&at, &twice[0].0), "is given more than once")),
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|member| member.0 == name)
    }

    /// Takes a field out, so that it counts no longer.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Field<'_, 'a>> {
        let (_, raw) = self.members.remove(self.place(name)?);
        Some(Field { at: &self.at, name, raw })
    }

    /// A field, if it is given.
    pub(super) fn get(&self, name: &str) -> Option<Field<'_, 'a>> {
        let (name, raw) = &self.members[self.place(name)?];
        Some(Field { at: &self.at, name, raw })
    }

    /// The JSON pointer of a field, given or not.
    pub(super) fn pointer(&self, name: &str) -> String {
        pointer(&self.at, name)
    }

    /// All fields, in the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = Field<'_, 'a>> {
        self.members.iter().map(|(name, raw)| Field { at: &self.at, name, raw })
    }

    /// Refuses the first field that is not among `known`; `what` has these.
    pub(super) fn only(&self, known: &[&str], what: impl fmt::Display) -> Result<(), Fault> {
        match self.members.iter().map(|member| &member.0).find(|name| !known.contains(&name.as_ref())) {
            None => Ok(()),
            Some(name) => {
                let near = nearest(name, known.iter().copied());
                let detail = format!("is not a field of {what}{near}");
                Err(Fault::field(RejectReason::UnknownField, self.pointer(name), detail))
            }
        }
    }

    /// Length of the names and values, in bytes.
    pub(super) fn len(&self) -> usize {
        self.members.iter().map(|(name, raw)| name.len() + raw.get().len()).sum()
    }
}

/// The members of an object as they come: also the same name twice.
struct Members<'a>(Vec<Member<'a>>);

#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

/// As many as most objects have at most.
const MEMBERS_EXPECTED: usize = 8;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(MEMBERS_EXPECTED);
        while let Some((name, value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
            members.push((name.0, value));
        }
        Ok(Members(members))
    }
}

/// A field that is given: its value as sent.
pub(super) struct Field<'f, 'a> {
    at: &'f str,
    pub(super) name: &'f str,
    pub(super) raw: &'a RawValue,
}

impl<'a> Field<'_, 'a> {
    /// The JSON pointer: made when something is wrong with the field.
    pub(super) fn pointer(&self) -> String {
        pointer(self.at, self.name)
    }

    /// The fault of this field; `detail` is the sentence that follows its pointer.
    pub(super) fn invalid(&self, detail: impl Into<String>) -> Fault {
        Fault::invalid(self.pointer(), detail)
    }

    fn is_not(&self, wanted: &str) -> Fault {
        self.invalid(format!("is {}; it must be {wanted}", kind_of(self.raw.get())))
    }

    /// The fields of an object.
    pub(super) fn fields(&self) -> Result<Fields<'a>, Fault> {
        let members =
            serde_json::from_str::<Members<'a>>(self.raw.get()).map_err(|_| self.is_not("an object"))?;
        Fields::checked(members, self.pointer())
    }

    /// A text.
    pub(super) fn text(&self) -> Result<Cow<'a, str>, Fault> {
        // JSON by now: without escapes a text lies there as it is.
        let within = self.raw.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        if let Some(text) = within.filter(|text| !text.contains('\\')) {
            return Ok(Cow::Borrowed(text));
        }
        match serde_json::from_str::<Text<'a>>(self.raw.get()) {
            Ok(text) => Ok(text.0),
            Err(_) if self.raw.get().starts_with('"') => {
                Err(self.invalid("is not a text: it has an escape of half a character"))
            }
            Err(_) => Err(self.is_not("a text")),
        }
    }

    /// A text of at most `bytes_max` bytes.
    pub(super) fn text_up_to(&self, bytes_max: usize) -> Result<Cow<'a, str>, Fault> {
        let text = self.text()?;
        match text.len() {
            len if len > bytes_max => {
                Err(self.invalid(format!("is {len} bytes long; at most {bytes_max} are allowed")))
            }
            _ => Ok(text),
        }
    }

    /// A text of 1 to `bytes_max` bytes without control characters.
    pub(super) fn tag(&self, bytes_max: usize) -> Result<Cow<'a, str>, Fault> {
        let text = self.text_up_to(bytes_max)?;
        if text.is_empty() {
            return Err(self.invalid(NameError::Empty.to_string()));
        }
        if text.chars().any(char::is_control) {
            return Err(self.invalid(NameError::ControlCharacter.to_string()));
        }
        Ok(text)
    }

    /// A name.
    pub(super) fn name<T>(&self, new: impl Fn(&str) -> Result<T, NameError>) -> Result<T, Fault> {
        new(&self.text()?).map_err(|error| self.invalid(error.to_string()))
    }

    /// A number within `range`.
    pub(super) fn number(&self, range: RangeInclusive<f64>) -> Result<f64, Fault> {
        let text = self.raw.get();
        let number: f64 = text.parse().map_err(|_| self.is_not("a number"))?;
        if range.contains(&number) {
            return Ok(number);
        }
        let (least, most) = (range.start(), range.end());
        Err(self.invalid(format!("is {}; it must be {least} to {most}", shown(text).trim_matches('"'))))
    }

    /// A whole number within `range`.
    pub(super) fn whole(&self, range: RangeInclusive<u32>) -> Result<u32, Fault> {
        let (least, most) = (*range.start(), *range.end());
        let number = self.number(f64::from(least)..=f64::from(most))?;
        if number.fract() != 0.0 {
            return Err(self.invalid(format!("is {number}; it must be a whole number")));
        }
        Ok(number as u32)
    }

    /// A duration of `range` milliseconds; `most` says the upper end in words.
    pub(super) fn duration_ms(&self, range: RangeInclusive<u64>, most: &str) -> Result<u64, Fault> {
        if !self.raw.get().starts_with('"') {
            return Err(self.is_not("a text such as \"10s\", \"1h30m\" or \"PT10M\""));
        }
        let text = self.text()?;
        let ms = parse_duration_ms(&text)
            .map_err(|error| self.invalid(format!("{error}: found {}", shown(&text))))?;
        if ms < *range.start() {
            return Err(self.invalid(format!(
                "is {}; it must be at least {} ms",
                shown(&text),
                range.start()
            )));
        }
        if ms > *range.end() {
            return Err(self.invalid(format!("is {}; at most {most} are allowed", shown(&text))));
        }
        Ok(ms)
    }

    /// A time.
    pub(super) fn time(&self, round: Round) -> Result<Wall, Fault> {
        let text = self.text()?;
        parse_time(&text, round).map_err(|error| self.invalid(format!("{error}: found {}", shown(&text))))
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, Fault> {
        let text = self.text()?;
        let found = words.iter().find(|word| word.0 == text);
        found.map(|word| word.1).ok_or_else(|| {
            let known: Vec<_> = words.iter().map(|word| format!("{:?}", word.0)).collect();
            self.invalid(format!("is {}; it must be {}", shown(&text), known.join(" or ")))
        })
    }
}

/// What a JSON value is, by its first byte.
fn kind_of(text: &str) -> &'static str {
    match text.bytes().next() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a text",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        _ => "a number",
    }
}
