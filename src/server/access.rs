//! Who asks, and whether they may: a token for each request, a role for each route.
//!
//! ```text
//! route (server.rs: role, verb) ── check ── no token, or an unknown one ─► 401
//!                                     │
//!                                     ├──── a role below the route's ────► 403
//!                                     └──── Caller ─► handler ─► the audit log, where the route changes something
//! ```
//! Knows nothing of what is asked: what of a route needs more than its role says, its handler says by [`Caller::expect`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::serve::IncomingStream;

use crate::config::{self, Config, Problems, Role};
use crate::metrics::DeniedReason;
use crate::model::limits::TEXT_BYTES_MAX;
use crate::runtime::gates::Author;

use super::audit::{self, Note};
use super::gates::{field, text};
use super::listen::Bounded;
use super::problem::Problem;
use super::tokens::Tokens;
use super::{Answer, Shared};

/// The code of an answer to who has not the role.
pub(super) const FORBIDDEN: &str = "forbidden";

/// Whom an interface lets in.
#[derive(Default)]
pub(super) enum Access {
    /// Whoever reaches it, without a word in the audit log: one's own machine.
    #[default]
    Own,
    /// Whoever reaches it.
    Open,
    /// Who has a token.
    Tokens(Tokens),
}

impl Access {
    /// As configured, with all tokens read.
    pub(super) fn new(config: &Config) -> Result<Access, Problems> {
        Ok(match &config.http.access {
            config::Access::Open => Access::Open,
            config::Access::Tokens(tokens) => Access::Tokens(Tokens::read(tokens)?),
        })
    }

    /// Reads the files of tokens again and again, for good.
    pub(super) async fn follow(&self) {
        match self {
            Access::Tokens(tokens) => tokens.follow().await,
            Access::Own | Access::Open => std::future::pending().await,
        }
    }

    /// Whose request this is.
    fn caller(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Result<Caller, DeniedReason> {
        let everyone = Caller { who: None, role: Role::Admin, from, note: Note::kept() };
        let Access::Tokens(tokens) = self else {
            let note = if matches!(self, Access::Own) { Note::default() } else { everyone.note };
            return Ok(Caller { note, ..everyone });
        };
        let token = tokens.owner(bearer(headers)?).ok_or(DeniedReason::UnknownToken)?;
        Ok(Caller { who: Some(token.name.clone()), role: token.role, ..everyone })
    }
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
    /// A text is too long, or has control characters.
    pub(super) fn author(&self, by: Option<String>, reason: Option<String>) -> Answer<Author> {
        let reason = reason.map(|reason| text("/reason", reason)).transpose()?;
        self.note.reason(reason.as_deref());
        let by = by.map(|by| text("/by", by)).transpose()?;
        self.note.by(by.as_deref());
        let by = match (&self.who, by.filter(|by| Some(&**by) != self.who.as_deref())) {
            (None, by) => by,
            (Some(who), None) => Some(who.clone()),
            (Some(who), Some(by)) => {
                let bytes_max = TEXT_BYTES_MAX - who.len() - " ()".len();
                if by.len() > bytes_max {
                    let detail = format!("has {} bytes; at most {bytes_max} are taken", by.len());
                    return Err(field("/by", detail));
                }
                Some(format!("{who} ({by})").into())
            }
        };
        Ok(Author { by, reason })
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
        for refused in
            [&"m".repeat(TEXT_BYTES_MAX), "mia\n7  now  gate_set  all", "mia\u{1b}[2K", "mia\u{85}"]
        {
            let code = by(Some("ci"), Some(refused)).map_err(|no| no.code);
            assert_eq!(code, Err("invalid_field".to_owned()), "{refused:?}");
        }
        let reason =
            |text: &str| caller(None).author(None, Some(text.to_owned())).map(|author| author.reason);
        assert_eq!(reason("it is 7\u{fc}r"), Ok(Some("it is 7\u{fc}r".into())));
        assert!(
            reason("two\nlines").expect_err("refused").detail.contains("/reason holds a control character")
        );
    }
}
