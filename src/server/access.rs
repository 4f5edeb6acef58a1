//! Who asks, and whether they may: a token for each request, a role for each route.
//!
//! ```text
//! route (server.rs: role, verb) ── check ── no token, or an unknown one ─► 401
//!                                     │
//!                                     ├──── a role below the route's ────► 403
//!                                     └──── Caller ─► handler ─► the audit log, where the route changes something
//! ```
//! Tokens are kept as SHA-256 and compared whole, each with every one, so that no answer comes sooner for a better guess.
//! Knows nothing of what is asked: what of a route needs more than its role says, its handler says by [`Caller::expect`].

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::serve::IncomingStream;
use sha2::{Digest as _, Sha256};

use crate::config::{self, Config, Problems, Role, Token, read_tokens};
use crate::metrics::DeniedReason;
use crate::model::limits::TEXT_BYTES_MAX;
use crate::runtime::gates::Author;

use super::audit::{self, Note};
use super::gates::{field, text};
use super::listen::Bounded;
use super::problem::Problem;
use super::{Answer, Shared};

/// Time between looks at the files of tokens.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Looks after which a trouble that goes on is told again.
const TELL_AGAIN: u32 = 30;

/// The code of an answer to who has not the role.
pub(super) const FORBIDDEN: &str = "forbidden";

type Hash = [u8; 32];

/// Whom an interface lets in.
#[derive(Default)]
pub(super) enum Access {
    /// Whoever reaches it, without a word in the audit log: one's own machine.
    #[default]
    Own,
    /// Whoever reaches it.
    Open,
    /// Who has a token.
    Tokens { tokens: Vec<Token>, hashes: RwLock<Arc<[Hash]>> },
}

impl Access {
    /// As configured, with all tokens read.
    pub(super) fn new(config: &Config) -> Result<Access, Problems> {
        Ok(match &config.http.access {
            config::Access::Open => Access::Open,
            config::Access::Tokens(tokens) => {
                let hashes = RwLock::new(hashes(tokens)?);
                Access::Tokens { tokens: tokens.clone(), hashes }
            }
        })
    }

    /// Reads the files of tokens again and again, for good.
    pub(super) async fn follow(&self) {
        let Access::Tokens { tokens, .. } = self else { return std::future::pending().await };
        let mut trouble: Option<(Problems, u32)> = None;
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            let tokens = tokens.clone();
            let Ok(read) = tokio::task::spawn_blocking(move || hashes(&tokens)).await else { continue };
            match self.take(read) {
                Ok(true) => tracing::info!("tokens have changed: those of the files are good from now on"),
                Ok(false) if trouble.is_some() => tracing::info!("tokens are in order again"),
                Ok(false) => {}
                Err(problems) => {
                    let looks = trouble.filter(|(told, _)| *told == problems).map_or(0, |(_, looks)| looks);
                    if looks.is_multiple_of(TELL_AGAIN) {
                        tracing::warn!(%problems, "tokens cannot be read anew: those read before stay good until the files are in order");
                    }
                    trouble = Some((problems, looks + 1));
                    continue;
                }
            }
            trouble = None;
        }
    }

    /// Takes what was read, if that is another. While one file is not in order all tokens stay as they were: a set half
    /// old and half new is what nobody has written.
    fn take(&self, read: Result<Arc<[Hash]>, Problems>) -> Result<bool, Problems> {
        let (Access::Tokens { hashes, .. }, read) = (self, read?) else { return Ok(false) };
        let mut known = hashes.write().unwrap_or_else(PoisonError::into_inner);
        let is_another = *known != read;
        *known = read;
        Ok(is_another)
    }

    /// Whose request this is.
    fn caller(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Result<Caller, DeniedReason> {
        let everyone = Caller { who: None, role: Role::Admin, from, note: Note::kept() };
        let Access::Tokens { tokens, hashes } = self else {
            let note = if matches!(self, Access::Own) { Note::default() } else { everyone.note };
            return Ok(Caller { note, ..everyone });
        };
        let given = bearer(headers)?;
        let hash: Hash = Sha256::digest(given).into();
        let hashes = hashes.read().unwrap_or_else(PoisonError::into_inner).clone();
        let same = |one: &Hash| one.iter().zip(&hash).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0;
        // To the end, wherever it is found.
        let found = tokens.iter().zip(hashes.iter()).fold(
            None,
            |found, (token, one)| {
                if same(one) { Some(token) } else { found }
            },
        );
        let token = found.ok_or(DeniedReason::UnknownToken)?;
        Ok(Caller { who: Some(token.name.clone()), role: token.role, ..everyone })
    }
}

fn hashes(tokens: &[Token]) -> Result<Arc<[Hash]>, Problems> {
    Ok(read_tokens(tokens)?.iter().map(|token| Sha256::digest(token.expose().as_bytes()).into()).collect())
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Result<&[u8], DeniedReason> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let first = given.next().ok_or(DeniedReason::NoToken)?.as_bytes();
    if given.next().is_some() {
        return Err(DeniedReason::UnknownToken);
    }
    let space = first.iter().position(|byte| *byte == b' ').ok_or(DeniedReason::UnknownToken)?;
    let (scheme, token) = first.split_at(space);
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer");
    if is_bearer { Ok(token.trim_ascii()) } else { Err(DeniedReason::NoToken) }
}

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, Bounded>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Bounded>) -> Peer {
        Peer(*stream.remote_addr())
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The name of the token; `None` = none is asked for.
    pub(super) who: Option<Arc<str>>,
    pub(super) role: Role,
    pub(super) from: Option<IpAddr>,
    /// What the audit log is to say of this request.
    pub(super) note: Note,
}

impl Caller {
    /// Who is not asked for a name and may change nothing.
    pub(super) fn nobody() -> Caller {
        Caller { who: None, role: Role::Viewer, from: None, note: Note::default() }
    }

    /// Checks for more than the route asks for.
    ///
    /// # Errors
    /// The caller has not the role.
    pub(super) fn expect(&self, role: Role, what: &str) -> Answer<()> {
        if self.role >= role { Ok(()) } else { Err(self.forbidden(role, what)) }
    }

    fn forbidden(&self, role: Role, what: &str) -> Problem {
        let (who, own) = (self.who.as_deref().unwrap_or("-"), self.role);
        let detail = format!("{what} needs the role {role}; the token of {who} has the role {own}.");
        Problem::new(StatusCode::FORBIDDEN, FORBIDDEN, detail)
    }

    /// Who goes on record for a change: the token's name, and behind it in brackets who the caller says to be.
    ///
    /// # Errors
    /// A text is too long.
    pub(super) fn author(&self, by: Option<String>, reason: Option<String>) -> Answer<Author> {
        let reason = reason.map(|reason| text("/reason", reason)).transpose()?;
        self.note.reason(reason.as_deref());
        let by = match (&self.who, by.filter(|by| Some(by.as_str()) != self.who.as_deref())) {
            (None, by) => by,
            (Some(who), None) => Some(who.to_string()),
            (Some(who), Some(by)) => {
                let bytes_max = TEXT_BYTES_MAX - who.len() - " ()".len();
                if by.len() > bytes_max {
                    return Err(field(
                        "/by",
                        format!("has {} bytes; at most {bytes_max} are taken", by.len()),
                    ));
                }
                Some(format!("{who} ({by})"))
            }
        };
        Ok(Author { by: by.map(|by| text("/by", by)).transpose()?, reason })
    }
}

/// For what is no route: whoever may not ask is not told what there is.
impl FromRequestParts<Arc<Shared>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Answer<Caller> {
        if let Some(caller) = parts.extensions.get() {
            return Ok(Caller::clone(caller));
        }
        let caller = shared.access.caller(&parts.headers, peer(&parts.extensions));
        caller.map_err(|reason| denied(shared, reason))
    }
}

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<ConnectInfo<Peer>>().map(|ConnectInfo(Peer(address))| address.ip())
}

/// What a route asks of its callers.
#[derive(Clone)]
pub(super) struct Needs {
    pub(super) shared: Arc<Shared>,
    pub(super) role: Role,
    /// What the route changes; `None` = it only reads.
    pub(super) verb: Option<&'static str>,
}

/// Lets in who may, and puts on record what they change.
pub(super) async fn check(State(needs): State<Needs>, mut request: Request, next: Next) -> Response {
    let Needs { shared, role, verb } = needs;
    let caller = match shared.access.caller(request.headers(), peer(request.extensions())) {
        Ok(caller) => caller,
        Err(reason) => return denied(&shared, reason).into_response(),
    };
    let entry = verb.filter(|_| caller.note.is_kept());
    let entry = entry.map(|verb| audit::Entry::begin(&caller, verb, request.uri().path()));
    let response = if caller.role < role {
        let what = format!("{} {}", request.method(), request.uri().path());
        caller.forbidden(role, &what).into_response()
    } else {
        request.extensions_mut().insert(caller);
        next.run(request).await
    };
    if audit::code_of(&response) == Some(FORBIDDEN) {
        count(&shared, DeniedReason::Role);
    }
    if let Some(entry) = entry {
        entry.end(&response);
    }
    response
}

fn denied(shared: &Shared, reason: DeniedReason) -> Problem {
    count(shared, reason);
    let why = match reason {
        DeniedReason::UnknownToken => {
            "The token of this request is not known here: it may have been replaced."
        }
        DeniedReason::NoToken | DeniedReason::Role => {
            "This server asks for a token, and the request has none."
        }
    };
    let detail = format!(
        "{why} Send one of a configured [[http.token]] as \"Authorization: Bearer …\"; on the command line name its file by --token-file or DUELINE_TOKEN_FILE."
    );
    Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail)
}

fn count(shared: &Shared, reason: DeniedReason) {
    if let Some(node) = shared.node.get() {
        node.metrics().denied(reason);
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_is_read_from_one_header_of_its_scheme() {
        let given = |values: &[&'static str]| {
            let values = values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_static(value)));
            let mut headers = HeaderMap::new();
            for (name, value) in values {
                headers.append(name, value);
            }
            bearer(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(given(&["Bearer abc"]), Ok(b"abc".to_vec()));
        assert_eq!(given(&["bEARER  abc "]), Ok(b"abc".to_vec()));
        assert_eq!(given(&[]), Err(DeniedReason::NoToken));
        assert_eq!(given(&["Basic YTpi"]), Err(DeniedReason::NoToken));
        assert_eq!(given(&["Bearer"]), Err(DeniedReason::UnknownToken));
        assert_eq!(given(&["Bearer a", "Bearer b"]), Err(DeniedReason::UnknownToken));
    }

    #[test]
    fn a_file_that_is_broken_keeps_all_tokens_as_they_were() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
        let table = |name: &str| {
            let path = dir.path().join(name).display().to_string();
            format!("[[http.token]]\nname = \"{name}\"\nrole = \"viewer\"\ntoken_file = \"{path}\"\n")
        };
        let (ann, bob, new) = ("a".repeat(24), "b".repeat(24), "c".repeat(24));
        write("ann", &ann);
        write("bob", &bob);
        write("toml", &(table("ann") + &table("bob")));
        let sources = config::Sources { file: Some(dir.path().join("toml")), ..config::Sources::default() };
        let config = config::load(sources).expect("in order").config;
        let access = Access::new(&config).expect("in order");
        let config::Access::Tokens(tokens) = &config.http.access else { panic!("no tokens") };
        let good = |token: &str| {
            let value = HeaderValue::try_from(format!("Bearer {token}")).expect("a header");
            let caller = access.caller(&HeaderMap::from_iter([(AUTHORIZATION, value)]), None);
            caller.ok().and_then(|caller| caller.who.map(|who| who.to_string()))
        };
        let again = || access.take(hashes(tokens)).map_err(|problems| problems.to_string());
        assert_eq!(
            (good(&ann).as_deref(), good(&bob).as_deref(), good(&new)),
            (Some("ann"), Some("bob"), None)
        );
        assert_eq!(again(), Ok(false));
        write("ann", &new);
        for broken in ["", "short", "two words and no token at all", &new] {
            write("bob", broken);
            let told = again().expect_err("broken");
            assert!(told.contains("http.token") && !told.contains(&new), "{told}");
            assert_eq!(
                (good(&ann).as_deref(), good(&bob).as_deref(), good(&new)),
                (Some("ann"), Some("bob"), None)
            );
        }
        std::fs::remove_file(dir.path().join("bob")).expect("removed");
        assert!(again().is_err());
        write("bob", &ann);
        assert_eq!(again(), Ok(true));
        assert_eq!(
            (good(&new).as_deref(), good(&ann).as_deref(), good(&bob)),
            (Some("ann"), Some("bob"), None)
        );
    }

    #[test]
    fn nobody_signs_as_another() {
        let caller = |who: Option<&str>| Caller { who: who.map(Arc::from), ..Caller::nobody() };
        let by = |who, by: Option<&str>| {
            let author = caller(who).author(by.map(str::to_owned), None);
            author.map(|author| author.by.map(|by| by.to_string()))
        };
        assert_eq!(by(None, Some("mia")), Ok(Some("mia".to_owned())));
        assert_eq!(by(Some("ci"), None), Ok(Some("ci".to_owned())));
        assert_eq!(by(Some("ci"), Some("ci")), Ok(Some("ci".to_owned())));
        assert_eq!(by(Some("ci"), Some("mia")), Ok(Some("ci (mia)".to_owned())));
        assert_eq!(
            by(Some("ci"), Some(&"m".repeat(TEXT_BYTES_MAX))).map_err(|no| no.code),
            Err("invalid_field".to_owned())
        );
    }
}
