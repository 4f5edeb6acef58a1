//! The tokens that are good now: each follows its own file, and none waits for another.
//!
//! ```text
//! a file       good              gone or empty     unreadable, or no token
//! its token    the one in it     taken away        the last good one
//! ```
//! At the start all of them have to be in order. Tokens are kept as SHA-256, and compared whole, each with every one.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::config::{Hidden, Problem, Problems, Token, Unread, read_tokens};

/// Time between looks at the files of tokens.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Looks after which a trouble that goes on is told again.
const TELL_AGAIN: u32 = 30;

type Hash = [u8; 32];

fn hash(token: &[u8]) -> Hash {
    Sha256::digest(token).into()
}

/// The tokens of the configuration, each with its hash; `None` = it was taken away.
pub(super) struct Tokens {
    tokens: Vec<Token>,
    hashes: RwLock<Arc<[Option<Hash>]>>,
}

/// What a look at one file found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// The token that was good before.
    Same,
    /// Another one, which is good from now on.
    Another,
    /// None is good any more.
    Gone(Problem),
    /// What was good before stays so.
    Broken(Problem),
}

impl Tokens {
    /// Reads them all.
    ///
    /// # Errors
    /// One is missing, none, or there twice.
    pub(super) fn read(tokens: &[Token]) -> Result<Tokens, Problems> {
        let hashes = read_tokens(tokens)?.iter().map(|text| Some(hash(text.expose().as_bytes()))).collect();
        Ok(Tokens { tokens: tokens.to_vec(), hashes: RwLock::new(hashes) })
    }

    /// Whose token this is. Looked for to the end, wherever it is found: no answer comes sooner for a better guess.
    pub(super) fn owner(&self, given: &[u8]) -> Option<&Token> {
        let given = hash(given);
        let hashes = self.known();
        let same = |one: &Hash| one.iter().zip(&given).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0;
        self.tokens.iter().zip(hashes.iter()).fold(None, |found, (token, one)| {
            if one.as_ref().is_some_and(same) { Some(token) } else { found }
        })
    }

    /// Reads the files again and again, for good.
    pub(super) async fn follow(&self) {
        let mut troubles: Vec<Option<(Found, u32)>> = vec![None; self.tokens.len()];
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            let tokens = self.tokens.clone();
            let read = move || tokens.iter().map(Token::read_anew).collect();
            let Ok(read) = tokio::task::spawn_blocking(read).await else { continue };
            let found = self.take(read);
            for ((token, found), trouble) in self.tokens.iter().zip(found).zip(&mut troubles) {
                tell(token, found, trouble);
            }
        }
    }

    fn known(&self) -> Arc<[Option<Hash>]> {
        self.hashes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes what was read, each token by itself. One that two files hold stays the one's that had it.
    fn take(&self, read: Vec<Result<Hidden, Unread>>) -> Vec<Found> {
        let known = self.known();
        let read = read.into_iter().map(|one| one.map(|text| hash(text.expose().as_bytes())));
        let mut next: Vec<Option<Hash>> = vec![None; known.len()];
        let read: Vec<Result<Hash, Unread>> = read.collect();
        for (place, one) in read.iter().enumerate() {
            next[place] = one.as_ref().ok().copied().filter(|hash| known[place] == Some(*hash));
        }
        let mut found = Vec::with_capacity(known.len());
        for (place, one) in read.into_iter().enumerate() {
            found.push(match one {
                Ok(_) if next[place].is_some() => Found::Same,
                Ok(hash) if next.contains(&Some(hash)) => Found::Broken(self.tokens[place].twice()),
                Ok(hash) => {
                    next[place] = Some(hash);
                    Found::Another
                }
                Err(Unread::Gone(problem)) => Found::Gone(problem),
                Err(Unread::Broken(problem)) => Found::Broken(problem),
            });
        }
        for (place, one) in found.iter().enumerate() {
            // What another file holds by now is that one's.
            if matches!(one, Found::Broken(_)) && !next.contains(&known[place]) {
                next[place] = known[place];
            }
        }
        *self.hashes.write().unwrap_or_else(PoisonError::into_inner) = next.into();
        found
    }
}

/// Writes what is new, and a trouble that goes on each minute.
fn tell(token: &Token, found: Found, trouble: &mut Option<(Found, u32)>) {
    let before = trouble.take();
    let who = &*token.name;
    let looks = before.as_ref().filter(|(told, _)| *told == found).map_or(0, |(_, looks)| *looks);
    let is_due = looks.is_multiple_of(TELL_AGAIN);
    match &found {
        Found::Another => tracing::info!(who, "a token has changed: the one in its file is good from now on"),
        Found::Same if before.is_some() => tracing::info!(who, "a token is in order again"),
        Found::Same => {}
        Found::Gone(problem) if is_due => {
            tracing::warn!(who, %problem, "a token is taken away, as its file is gone or empty: remove its table, or write a token into the file");
        }
        Found::Broken(problem) if is_due => {
            tracing::warn!(who, %problem, "a token cannot be read anew: the one read last stays good until its file is in order");
        }
        Found::Gone(_) | Found::Broken(_) => {}
    }
    if matches!(found, Found::Gone(_) | Found::Broken(_)) {
        *trouble = Some((found, looks + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Access, Sources, load};

    struct Files {
        dir: tempfile::TempDir,
        tokens: Tokens,
    }

    fn long(letter: char) -> String {
        letter.to_string().repeat(24)
    }

    impl Files {
        /// Tokens of ann, bob and cid: `a…`, `b…` and `c…`.
        fn new() -> Files {
            let dir = tempfile::tempdir().expect("a folder");
            let mut toml = String::new();
            for name in ["ann", "bob", "cid"] {
                let path = dir.path().join(name);
                std::fs::write(&path, long(name.chars().next().expect("a letter"))).expect("written");
                let path = path.display();
                toml += &format!(
                    "[[http.token]]\nname = \"{name}\"\nrole = \"viewer\"\ntoken_file = \"{path}\"\n"
                );
            }
            std::fs::write(dir.path().join("toml"), toml).expect("written");
            let sources = Sources { file: Some(dir.path().join("toml")), ..Sources::default() };
            let config = load(sources).expect("in order").config;
            let Access::Tokens(tokens) = &config.http.access else { panic!("no tokens") };
            Files { tokens: Tokens::read(tokens).expect("in order"), dir }
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.dir.path().join(name), text).expect("written");
        }

        fn look(&self) -> String {
            let found = self.tokens.take(self.tokens.tokens.iter().map(Token::read_anew).collect());
            let word = |found: &Found| match found {
                Found::Same => "same",
                Found::Another => "another",
                Found::Gone(_) => "gone",
                Found::Broken(_) => "broken",
            };
            found.iter().map(word).collect::<Vec<_>>().join(" ")
        }

        /// Who has the tokens of these letters.
        fn owners(&self, letters: &str) -> String {
            let owner = |letter| self.tokens.owner(long(letter).as_bytes()).map_or("-", |token| &token.name);
            letters.chars().map(owner).collect::<Vec<_>>().join(" ")
        }
    }

    #[test]
    fn a_broken_file_keeps_its_own_token_and_holds_up_no_other() {
        let files = Files::new();
        assert_eq!(
            (files.look(), files.owners("abc")),
            ("same same same".to_owned(), "ann bob cid".to_owned())
        );
        for (broken, letter, before) in [("short", 'd', 'a'), ("two words and no token at all", 'e', 'd')] {
            files.write("bob", broken);
            files.write("ann", &long(letter));
            assert_eq!(files.look(), "another broken same", "{broken}");
            assert_eq!(files.owners(&format!("{letter}{before}bc")), "ann - bob cid", "{broken}");
        }
        // A folder can be opened and not be read, by root neither.
        std::fs::remove_file(files.dir.path().join("bob")).expect("removed");
        std::fs::create_dir(files.dir.path().join("bob")).expect("a folder");
        std::fs::remove_file(files.dir.path().join("cid")).expect("removed");
        assert_eq!(files.look(), "same broken gone");
        assert_eq!(files.owners("ebc"), "ann bob -");
    }

    #[test]
    fn a_file_that_is_gone_or_empty_takes_its_token_away_until_it_has_one() {
        let files = Files::new();
        files.write("ann", "");
        files.write("cid", "\n");
        std::fs::remove_file(files.dir.path().join("bob")).expect("removed");
        assert_eq!((files.look(), files.owners("abc")), ("gone gone gone".to_owned(), "- - -".to_owned()));
        // What is broken now has no last good token.
        files.write("ann", "short");
        files.write("bob", &long('b'));
        assert_eq!(files.look(), "broken another gone");
        assert_eq!(files.owners("abc"), "- bob -");
    }

    #[test]
    fn a_token_in_two_files_stays_whose_it_was() {
        let files = Files::new();
        files.write("ann", &long('b'));
        assert_eq!((files.look(), files.owners("ab")), ("broken same same".to_owned(), "ann bob".to_owned()));
        // Two change places; what a broken file had last is another's by now.
        files.write("ann", &long('c'));
        files.write("cid", "short");
        assert_eq!(
            (files.look(), files.owners("abc")),
            ("another same broken".to_owned(), "- bob ann".to_owned())
        );
    }

    #[test]
    fn what_is_told_of_a_file_has_nothing_of_what_is_in_it() {
        let files = Files::new();
        files.write("ann", "secret but no token");
        files.write("bob", &long('c'));
        let found = files.tokens.take(files.tokens.tokens.iter().map(Token::read_anew).collect());
        for (found, name) in found.iter().zip(["ann", "bob"]) {
            let Found::Broken(problem) = found else { panic!("{found:?}") };
            let told = problem.to_string();
            assert!(told.contains(&format!("of {name:?}")), "{told}");
            assert!(!told.contains("secret") && !told.contains(&long('c')), "{told}");
        }
    }
}
