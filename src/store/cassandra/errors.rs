//! The driver's errors by what the caller can do: wait and send again, or call a person.
//!
//! Whether a refusal concerns one row alone cannot be told from an error; `refused` finds out.

mod connect;

use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, NewSessionError, PrepareError, RequestAttemptError, UseKeyspaceError,
};

use crate::store::Error;

/// Of a request.
pub(super) fn of_request(error: &ExecutionError) -> Error {
    let text = error.to_string();
    match error {
        ExecutionError::LastAttemptError(attempt) => of_attempt(attempt, text),
        ExecutionError::PrepareError(error) => of_prepare(error),
        ExecutionError::ConnectionPoolError(error) => of_pool(error, text),
        ExecutionError::UseKeyspaceError(error) => of_use(error),
        ExecutionError::BadQuery(_) => Error::Misconfigured(text),
        _ => Error::Unavailable(text),
    }
}

/// Of the preparation of a statement.
pub(super) fn of_prepare(error: &PrepareError) -> Error {
    let text = error.to_string();
    match error {
        PrepareError::AllAttemptsFailed { first_attempt } => of_attempt(first_attempt, text),
        PrepareError::ConnectionPoolError(error) => of_pool(error, text),
        _ => Error::Unavailable(text),
    }
}

/// Of connecting to any of `nodes`.
pub(super) fn of_connect(error: &NewSessionError, nodes: &[String]) -> Error {
    let text = format!("no connection to {}: {error}", nodes.join(", "));
    match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(error)) => {
            of_pool(error, text + connect::todo(error))
        }
        NewSessionError::UseKeyspaceError(error) => of_use(error),
        NewSessionError::EmptyKnownNodesList | NewSessionError::IllegalConfig(_) => {
            Error::Misconfigured(text)
        }
        _ => Error::Unavailable(text),
    }
}

/// Of `USE`.
pub(super) fn of_use(error: &UseKeyspaceError) -> Error {
    let text = error.to_string();
    match error {
        UseKeyspaceError::RequestError(attempt) => of_attempt(attempt, text),
        UseKeyspaceError::BadKeyspaceName(_) => Error::Misconfigured(text),
        _ => Error::Unavailable(text),
    }
}

/// Of a stored value that does not have the type it was written with.
pub(super) fn unreadable(table: &str) -> impl Fn(&dyn std::fmt::Display) -> Error {
    move |error| Error::Corrupt(format!("{table}: {error}"))
}

fn of_attempt(error: &RequestAttemptError, text: String) -> Error {
    match error {
        RequestAttemptError::DbError(error, _) if asks_for_a_person(error) => Error::Misconfigured(text),
        RequestAttemptError::SerializationError(_)
        | RequestAttemptError::CqlRequestSerialization(_)
        | RequestAttemptError::RepreparedIdChanged { .. } => Error::Misconfigured(text),
        _ => Error::Unavailable(text),
    }
}

/// Refused credentials end a connection before its pool is up; without this, start would wait for ever.
fn of_pool(error: &ConnectionPoolError, text: String) -> Error {
    let ConnectionPoolError::Broken {
        last_connection_error: ConnectionError::ConnectionSetupRequestError(setup),
    } = error
    else {
        return Error::Unavailable(text);
    };
    match &setup.error {
        ConnectionSetupRequestErrorKind::DbError(error, _) if asks_for_a_person(error) => {
            Error::Misconfigured(text)
        }
        ConnectionSetupRequestErrorKind::MissingAuthentication
        | ConnectionSetupRequestErrorKind::StartAuthSessionError(_)
        | ConnectionSetupRequestErrorKind::AuthChallengeEvaluationError(_)
        | ConnectionSetupRequestErrorKind::AuthFinishError(_) => Error::Misconfigured(text),
        _ => Error::Unavailable(text),
    }
}

fn asks_for_a_person(error: &DbError) -> bool {
    matches!(
        error,
        DbError::Invalid
            | DbError::SyntaxError
            | DbError::Unauthorized
            | DbError::AuthenticationError
            | DbError::ConfigError
            | DbError::AlreadyExists { .. }
            | DbError::FunctionFailure { .. }
            | DbError::ProtocolError
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use scylla::statement::Consistency;

    use super::*;

    fn of_db(error: DbError) -> Error {
        of_request(&ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, "words".into())))
    }

    #[test]
    fn what_may_pass_by_itself_is_unavailable() {
        let consistency = Consistency::Quorum;
        for error in [
            DbError::Overloaded,
            DbError::IsBootstrapping,
            DbError::ServerError,
            DbError::Unavailable { consistency, required: 3, alive: 2 },
        ] {
            assert!(matches!(of_db(error), Error::Unavailable(text) if text.contains("words")));
        }
        let timeout = ExecutionError::RequestTimeout(Duration::from_secs(5));
        assert!(matches!(of_request(&timeout), Error::Unavailable(_)));
        assert!(matches!(of_request(&ExecutionError::EmptyPlan), Error::Unavailable(_)));
    }

    #[test]
    fn what_needs_a_person_is_misconfigured() {
        for error in [DbError::Invalid, DbError::Unauthorized, DbError::ConfigError, DbError::SyntaxError] {
            assert!(matches!(of_db(error), Error::Misconfigured(text) if text.contains("words")));
        }
    }
}
