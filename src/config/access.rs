//! Who may ask over HTTP: the `[[http.token]]` tables, and the tokens themselves, from their files.
//!
//! ```text
//! tokens  http.access  listens on   →
//! some    tokens, –    anywhere     tokens
//! none    open         anywhere     open
//! none    –            loopback *   open, with a warning
//! none    –            elsewhere    `serve` refuses to start
//! ```
//! * and known by no other name (`http.hosts`, `http.advertise`): those are of a proxy in front, which lets others in.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::Uri;

use super::build::read_secret;
use super::section::{Origin, Section};
use super::{Config, Hidden, Http, Problem, Problems};

/// Most tokens.
pub const TOKENS_MAX: usize = 100;
/// Longest name of a token, in bytes.
const TOKEN_NAME_BYTES_MAX: usize = 64;
/// Shortest and longest token, in characters.
const TOKEN_LENGTH_MIN: usize = 24;
const TOKEN_LENGTH_MAX: usize = 1_024;
/// A file with more than this is not empty, whatever it holds.
const WITHDRAWN_BYTES_MAX: u64 = 64;

/// What a token is good for. Each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look at everything.
    Viewer,
    /// Change what daily work changes.
    Operator,
    /// Destroy, and change everything at once.
    Admin,
}

impl Role {
    /// All of them, the least first.
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Operator, Role::Admin];

    /// The word used in configuration, answers and logs.
    pub fn word(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Who may ask over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Whoever reaches it, everything.
    #[default]
    Open,
    /// Who has one of these, at least one.
    Tokens(Vec<Token>),
}

/// A token, by where it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Who has it. Several tokens may be of one name, of the same role.
    pub name: Arc<str>,
    /// What it is good for.
    pub role: Role,
    /// Where it is.
    pub source: TokenSource,
    origin: Origin,
}

/// Where a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// In a file, which may change while the process runs.
    File(PathBuf),
    /// In the environment.
    Environment(Hidden),
}

/// Why a token could not be read anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Its file is gone or empty: somebody took it away.
    Gone(Problem),
    /// Its file cannot be read, or holds no token.
    Broken(Problem),
}

/// The tables that are in order; the problems of the others, and of what `http.access` says beside them.
pub(super) fn access(main: &Section, tables: &[Section], problems: &mut Vec<Problem>) -> Access {
    let mut tokens: Vec<Token> = Vec::new();
    if tables.len() > TOKENS_MAX {
        problems.push(of_token(
            &tables[TOKENS_MAX],
            "",
            format!("are {}: at most {TOKENS_MAX}", tables.len()),
        ));
    }
    for section in tables {
        match token(section) {
            Err(problem) => problems.push(problem),
            Ok(token) => tokens.push(token),
        }
    }
    let mut roles = BTreeMap::new();
    for token in &tokens {
        let role = *roles.entry(&token.name).or_insert(token.role);
        if role != token.role {
            let text =
                format!("of {:?} is {} here and {role} above: one name has one role", token.name, token.role);
            problems.push(Problem::new(&token.origin, "http.token.role", text));
        }
    }
    let contradiction = match main.text("http.access").as_str() {
        "open" if !tables.is_empty() => {
            Some("is \"open\", and there are tokens, which nobody would ask for: remove one of the two")
        }
        "tokens" if tables.is_empty() => Some(
            "is \"tokens\", and there is none: add a [[http.token]] table with name, role and token_file",
        ),
        _ => None,
    };
    let origin = main.origin_of("http.access");
    problems.extend(contradiction.map(|text| Problem::new(&origin, "http.access", text)));
    if tokens.is_empty() { Access::Open } else { Access::Tokens(tokens) }
}

fn of_token(section: &Section, path: &str, text: impl Into<String>) -> Problem {
    let key = if path.is_empty() { "http.token".to_owned() } else { format!("http.token.{path}") };
    let origin = if path.is_empty() { section.origin.clone() } else { section.origin_of(path) };
    Problem::new(&origin, key, text)
}

fn token(section: &Section) -> Result<Token, Problem> {
    let missing =
        |path: &str, what: &str| of_token(section, path, format!("is missing: write {path} = {what}"));
    let name = section.text_if_set("name").ok_or_else(|| missing("name", "…, who has the token"))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
    if name.is_empty() || name.len() > TOKEN_NAME_BYTES_MAX || !name.chars().all(is_plain) {
        let text = format!(
            "must be 1 to {TOKEN_NAME_BYTES_MAX} letters, digits, \".\", \"_\", \"@\" and \"-\"; found {name:?}"
        );
        return Err(of_token(section, "name", text));
    }
    let role = section
        .text_if_set("role")
        .ok_or_else(|| missing("role", "\"viewer\", \"operator\" or \"admin\""))?;
    let role = Role::ALL.into_iter().find(|one| one.word() == role).expect("a choice of the table");
    let source = match (section.text_if_set("token_file"), section.text_if_set("token")) {
        (Some(file), None) => TokenSource::File(PathBuf::from(file)),
        (None, Some(text)) => TokenSource::Environment(Hidden(text)),
        (Some(_), Some(_)) => {
            let variable = super::keys::token_variable(&name);
            return Err(of_token(section, "token_file", format!("is set, and so is {variable}: remove one")));
        }
        (None, None) => {
            let variable = super::keys::token_variable(&name);
            let text = format!("is missing: write token_file = …, a file with the token, or set {variable}");
            return Err(of_token(section, "token_file", text));
        }
    };
    Ok(Token { name: Arc::from(name), role, source, origin: section.origin.clone() })
}

impl Token {
    /// The token itself, read now.
    fn read(&self) -> Result<Hidden, Problem> {
        let (key, found) = match &self.source {
            TokenSource::Environment(text) => ("http.token.token", Ok(text.expose().to_owned())),
            TokenSource::File(path) => ("http.token.token_file", read_secret(path)),
        };
        let whose = |text: String| Problem::new(&self.origin, key, format!("of {:?} {text}", self.name));
        let text = found.map_err(whose)?;
        let fits = (TOKEN_LENGTH_MIN..=TOKEN_LENGTH_MAX).contains(&text.len());
        if fits && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Hidden(text));
        }
        let found = if fits { "another character".to_owned() } else { format!("{} bytes", text.len()) };
        Err(whose(format!(
            "holds no token: one line of {TOKEN_LENGTH_MIN} to {TOKEN_LENGTH_MAX} visible ASCII characters, as `openssl rand -base64 32` writes it; found {found}"
        )))
    }

    /// The token itself, read while the process runs: the other tokens have no part in it.
    ///
    /// # Errors
    /// It was taken away, or cannot be read; never what is in the file.
    pub fn read_anew(&self) -> Result<Hidden, Unread> {
        self.read().map_err(
            |problem| if self.is_withdrawn() { Unread::Gone(problem) } else { Unread::Broken(problem) },
        )
    }

    /// That it holds what another table holds already.
    pub fn twice(&self) -> Problem {
        let text = format!("of {:?} holds the token of another table: each has its own", self.name);
        Problem::new(&self.origin, "http.token", text)
    }

    /// Whether its file is gone or empty.
    fn is_withdrawn(&self) -> bool {
        let Some(path) = self.file() else { return false };
        let mut text = Vec::new();
        match File::open(path).and_then(|file| file.take(WITHDRAWN_BYTES_MAX).read_to_end(&mut text)) {
            Ok(_) => text.trim_ascii().is_empty(),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    fn file(&self) -> Option<&Path> {
        match &self.source {
            TokenSource::File(path) => Some(path),
            TokenSource::Environment(_) => None,
        }
    }

    fn is_missing(&self) -> bool {
        self.file().is_some_and(|path| matches!(path.try_exists(), Ok(false)))
    }

    fn doubt(&self) -> Option<String> {
        let path = self.file()?;
        let whose = format!("token {:?}: {}", &*self.name, path.display());
        match std::fs::metadata(path) {
            Err(_) if self.is_missing() => {
                Some(format!("{whose} is not there: serve does not start until it is"))
            }
            Ok(found) if found.permissions().mode() & 0o007 != 0 => Some(format!(
                "{whose} is open to every user of this machine: give it to the group of serve, then chmod o= {}",
                path.display()
            )),
            Ok(_) | Err(_) => None,
        }
    }
}

/// Reads all tokens.
///
/// # Errors
/// Those that are missing, none, or there twice, at once; never what is in a file.
pub fn read_tokens(tokens: &[Token]) -> Result<Vec<Hidden>, Problems> {
    let mut read: Vec<Hidden> = Vec::new();
    let mut problems = Vec::new();
    for token in tokens {
        match token.read() {
            Err(problem) => problems.push(problem),
            Ok(text) if read.contains(&text) => problems.push(token.twice()),
            Ok(text) => read.push(text),
        }
    }
    if problems.is_empty() { Ok(read) } else { Err(Problems(problems)) }
}

impl Http {
    /// The host of `http.advertise`.
    pub fn advertised_host(&self) -> Option<String> {
        let url: Uri = self.advertise.parse().ok()?;
        url.host().map(|host| host.trim_start_matches('[').trim_end_matches(']').to_owned())
    }

    /// Why more than the programs of this machine may reach it.
    fn reached_by_others(&self) -> Option<String> {
        if !self.listen.ip().is_loopback() {
            return Some(format!("http.listen is {}, where other machines reach it", self.listen));
        }
        let is_local = |host: &String| {
            host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        };
        if let Some(host) = self.hosts.iter().find(|host| !is_local(host)) {
            return Some(format!("http.hosts has {host:?}: others reach it under that name, by a proxy"));
        }
        let host = self.advertised_host();
        let shown = host.as_ref().unwrap_or(&self.advertise);
        let is_own = host.as_ref().is_some_and(is_local);
        (!is_own)
            .then(|| format!("http.advertise names {shown:?}, where other machines reach it, by a proxy"))
    }
}

impl Config {
    /// What is doubtful about who may ask; without servers only what is doubtful for `serve` alone.
    pub(super) fn doubts_of_access(&self) -> Vec<String> {
        let http = &self.http;
        match &http.access {
            Access::Open if http.is_open_on_purpose || self.is_dev => Vec::new(),
            Access::Open if self.kafka.brokers.is_none() && self.embedded.is_none() => Vec::new(),
            Access::Open => vec![format!(
                "every program of this machine may do everything at http://{}: add [[http.token]] tables, or say http.access = \"open\" if that is meant",
                http.listen
            )],
            Access::Tokens(tokens) => tokens.iter().filter_map(Token::doubt).collect(),
        }
    }

    /// Checks that `serve` may let in whom the configuration lets in. Token files that are not there are left to
    /// [`read_tokens`]: a configuration is also checked where they are not.
    ///
    /// # Errors
    /// Everyone who reaches it would be let in without that being said, or tokens are none.
    pub fn require_access(&self) -> Result<(), Problems> {
        let http = &self.http;
        match &http.access {
            Access::Open if http.is_open_on_purpose => Ok(()),
            Access::Open => {
                let Some(why) = http.reached_by_others() else { return Ok(()) };
                let text = format!(
                    "is not set, there is no [[http.token]], and {why}: add [[http.token]] tables (name, role, token_file; docs/operations.md, who may ask), or say http.access = \"open\" if whoever reaches it may do everything"
                );
                Err(Problems(vec![Problem::new(&Origin::Default, "http.access", text)]))
            }
            Access::Tokens(tokens) => {
                let there: Vec<Token> = tokens.iter().filter(|token| !token.is_missing()).cloned().collect();
                read_tokens(&there).map(drop)
            }
        }
    }
}
