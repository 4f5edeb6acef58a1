//! What instances answer by HTTP while there is no quorum of nodes, or no broker: each thing that is asked for is done, or refused
//! in time with an error that says what is away. When the servers are back all is done again without a hand, and what was accepted
//! is there.
//!
//! Nothing of it is in the ledgers: the queues that are paused have no tasks, and the tasks that are scheduled are due long after the
//! run. So a request that was refused and done all the same harms nobody.

use std::time::Duration;

use anyhow::{Context as _, Result};
use dueline::testing::history::End;
use reqwest::{Client, RequestBuilder};
use serde_json::{Map, Value};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock::{sleep_ms, wall_ms};
use crate::course::Answers;
use crate::event::Event;
use crate::ledger::Key;
use crate::say;
use crate::stage::Stage;

/// Between two requests to an instance, in milliseconds.
const PACE_MS: i64 = 2_000;
/// When the servers are back all is done again within this, and what was accepted is there within this after that.
const AGAIN_WITHIN: Duration = Duration::from_secs(120);
/// A task is due so long after it is asked for, in milliseconds.
const DUE_MS: i64 = 86_400_000;
/// So many characters of an answer are shown.
const SHOWN_MAX: usize = 300;

/// What is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Away {
    Quorum,
    Brokers,
}

impl Away {
    pub(super) fn words(self) -> &'static str {
        match self {
            Away::Quorum => "a quorum of nodes",
            Away::Brokers => "a broker",
        }
    }

    /// Errors that say so: their code, and its name in their words.
    fn said(self) -> (&'static str, &'static str) {
        match self {
            Away::Quorum => ("store_unavailable", "the store"),
            Away::Brokers => ("log_unavailable", "the log"),
        }
    }
}

/// What is asked for: a read and a change of what is in Cassandra, and a record for Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Show,
    Pause,
    Schedule,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Show, Kind::Pause, Kind::Schedule];

    fn words(self) -> &'static str {
        match self {
            Kind::Show => "show a task",
            Kind::Pause => "pause a queue",
            Kind::Schedule => "schedule a task",
        }
    }

    /// By its own bounds an instance has given up by then, on a busy machine too.
    fn within(self) -> Duration {
        Duration::from_secs(match self {
            // The first read that fails ends it, after `cassandra.request_timeout`: 5 s.
            Kind::Show => 15,
            // Eight tries with such a read each, and 5 s between them in all.
            Kind::Pause => 55,
            // `kafka.message_timeout`: 30 s.
            Kind::Schedule => 40,
        })
    }
}

/// A thing, and the task or queue that it is about.
#[derive(Clone, Debug)]
struct Question {
    kind: Kind,
    queue: String,
    id: String,
}

/// How an instance took a question.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Done,
    /// With an error that says what is away.
    Refused,
    /// Neither.
    Unclear(String),
}

#[derive(Debug)]
struct Answered {
    instance: String,
    question: Question,
    verdict: Verdict,
    took: Duration,
}

/// Requests that go on until a time; dropped, no more are made.
#[derive(Debug)]
pub(super) struct Asking {
    askers: Vec<Asker>,
    away: Away,
    under_way: JoinSet<Vec<Answered>>,
}

/// Readies the questions to every living instance: what can go wrong with that does so before anything is away.
pub(super) fn ready(stage: &Stage<'_>, away: Away) -> Result<Asking> {
    // A connection for each request: none breaks off because it was idle.
    let client = Client::builder().no_proxy().pool_max_idle_per_host(0).build().context("an HTTP client")?;
    let known = ran(stage).context("no task has run yet")?;
    let asker = |(instance, port): (String, u16)| Asker {
        client: client.clone(),
        instance,
        port,
        away,
        known: known.clone(),
    };
    let askers = stage.http_ports().into_iter().map(asker).collect();
    Ok(Asking { askers, away, under_way: JoinSet::new() })
}

impl Asking {
    /// Asks for one thing after the other from now on, until a time.
    pub(super) fn begin(&mut self, until: i64) {
        for (first, asker) in self.askers.iter().cloned().enumerate() {
            self.under_way.spawn(async move { asker.ask_until(first, until).await });
        }
    }
}

/// Once the servers are back: judges what was answered without them, and sees that all is done again.
pub(super) async fn end(stage: &mut Stage<'_>, asking: Asking) -> Result<()> {
    let Asking { askers, away, mut under_way } = asking;
    let without = away.words();
    let mut all = Vec::new();
    while let Some(answered) = under_way.join_next().await {
        all.extend(answered.context("asking an instance ended with a panic")?);
    }
    tell(&all, without);
    stage.answers = stage.answers.and(counted(&all));
    let mut accepted = Vec::new();
    for Answered { instance, question, verdict, .. } in all {
        match verdict {
            Verdict::Done => accepted.push(question),
            Verdict::Refused => {}
            Verdict::Unclear(why) => {
                let words = question.kind.words();
                stage.wrong(format!("{instance} was asked to {words} without {without}: {why}"));
            }
        }
    }
    again(stage, &askers, &mut accepted).await;
    if let Some(asker) = askers.first() {
        for Question { kind, queue, .. } in asker.until_there(accepted).await {
            let words = kind.words();
            stage.wrong(format!("a request to {words} was accepted, and its effect is not there: {queue}"));
        }
    }
    Ok(())
}

/// Every instance does all that it is asked for.
async fn again(stage: &mut Stage<'_>, askers: &[Asker], accepted: &mut Vec<Question>) {
    let deadline = Instant::now() + AGAIN_WITHIN;
    for asker in askers {
        for kind in Kind::ALL {
            let Answered { instance, question, verdict, .. } = asker.until_done(kind, deadline).await;
            match verdict {
                Verdict::Done => accepted.push(question),
                Verdict::Refused | Verdict::Unclear(_) => stage.wrong(format!(
                    "{instance} does not {} {AGAIN_WITHIN:?} after the servers were back: {verdict:?}",
                    kind.words()
                )),
            }
        }
    }
}

fn tell(all: &[Answered], without: &str) {
    for kind in Kind::ALL {
        let of_kind: Vec<&Answered> = all.iter().filter(|one| one.question.kind == kind).collect();
        let longest = of_kind.iter().map(|one| one.took).max().unwrap_or_default();
        say::line(format_args!(
            "   without {without}, to {}: {}, after {:.1} s at most",
            kind.words(),
            counted(of_kind),
            longest.as_secs_f64()
        ));
    }
}

fn counted<'a>(all: impl IntoIterator<Item = &'a Answered>) -> Answers {
    let mut answers = Answers::default();
    for one in all {
        match &one.verdict {
            Verdict::Done => answers.done += 1,
            Verdict::Refused => answers.refused += 1,
            Verdict::Unclear(_) => answers.unclear += 1,
        }
    }
    answers
}

/// The last task that has run: it is known, or it would not have been called.
fn ran(stage: &Stage<'_>) -> Option<Key> {
    let has_run = |ended: Option<(i64, End)>| matches!(ended, Some((_, End::Succeeded)));
    let calls = stage.sink.calls.all().into_iter().rev();
    calls.map(|call| call.called).find(|called| has_run(called.ended)).map(|called| (called.queue, called.id))
}

/// Who asks an instance.
#[derive(Clone, Debug)]
struct Asker {
    client: Client,
    instance: String,
    port: u16,
    away: Away,
    /// A task that has run.
    known: Key,
}

impl Asker {
    async fn ask_until(&self, first: usize, until: i64) -> Vec<Answered> {
        let mut all = Vec::new();
        // Not all instances begin with the same: a short time sees all kinds.
        for number in first.. {
            if wall_ms() >= until {
                break;
            }
            let answered = self.ask(Kind::ALL[number % Kind::ALL.len()]).await;
            // Whether one that the servers' return fell into is done in time says nothing of their absence.
            if wall_ms() < until || !matches!(answered.verdict, Verdict::Unclear(_)) {
                all.push(answered);
            }
            sleep_ms(PACE_MS).await;
        }
        all
    }

    async fn until_done(&self, kind: Kind, deadline: Instant) -> Answered {
        loop {
            let answered = self.ask(kind).await;
            if answered.verdict == Verdict::Done || Instant::now() > deadline {
                return answered;
            }
            sleep_ms(PACE_MS).await;
        }
    }

    /// Waits until the effect of all that was accepted is there; what is not, in the end.
    async fn until_there(&self, mut left: Vec<Question>) -> Vec<Question> {
        let deadline = Instant::now() + AGAIN_WITHIN;
        loop {
            left = self.missing(left).await;
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            sleep_ms(PACE_MS).await;
        }
    }

    async fn missing(&self, accepted: Vec<Question>) -> Vec<Question> {
        let request = self.client.get(self.url("gates")).timeout(Kind::Show.within());
        let gates = said(request).await.map(|(_, body)| body).unwrap_or_default();
        let mut missing = Vec::new();
        for question in accepted {
            let is_there = match question.kind {
                Kind::Show => true,
                Kind::Pause => gates.contains(&format!("\"{}\"", question.queue)),
                Kind::Schedule => {
                    let shown = Question { kind: Kind::Show, ..question.clone() };
                    self.answer(shown).await.verdict == Verdict::Done
                }
            };
            if !is_there {
                missing.push(question);
            }
        }
        missing
    }

    async fn ask(&self, kind: Kind) -> Answered {
        let (queue, id) = match kind {
            Kind::Show => self.known.clone(),
            // Of this request alone.
            Kind::Pause | Kind::Schedule => {
                (format!("asked-{}-{}", self.instance, wall_ms()), "t".to_owned())
            }
        };
        self.answer(Question { kind, queue, id }).await
    }

    async fn answer(&self, question: Question) -> Answered {
        let begun = Instant::now();
        let said = said(self.request(&question)).await;
        let took = begun.elapsed();
        let verdict = verdict(&said, self.away, took, question.kind.within());
        Answered { instance: self.instance.clone(), question, verdict, took }
    }

    fn request(&self, Question { kind, queue, id }: &Question) -> RequestBuilder {
        let post = |path: &str, body: String| {
            self.client.post(self.url(path)).header("content-type", "application/json").body(body)
        };
        let request = match kind {
            Kind::Show => self.client.get(self.url(&format!("tasks/{queue}/{id}"))),
            Kind::Pause => post(&format!("queues/{queue}/pause"), r#"{"by":"chaos"}"#.to_owned()),
            Kind::Schedule => {
                let due = Some(wall_ms() + DUE_MS);
                post("tasks", Event::schedule(queue, id, due, "{}".to_owned()).json())
            }
        };
        request.timeout(kind.within())
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/v1/{path}", self.port)
    }
}

/// The status and the body of an answer, or why there is none.
async fn said(request: RequestBuilder) -> Result<(u16, String), String> {
    let read = async {
        let answer = request.send().await?;
        Ok::<_, reqwest::Error>((answer.status().as_u16(), answer.text().await?))
    };
    read.await.map_err(|error| format!("{:#}", anyhow::Error::from(error)))
}

fn verdict(said: &Result<(u16, String), String>, away: Away, took: Duration, within: Duration) -> Verdict {
    if took >= within {
        return Verdict::Unclear(format!("no answer within {within:?}"));
    }
    let (status, body) = match said {
        Ok((status, body)) => (*status, body),
        Err(error) => return Verdict::Unclear(format!("no answer: {error}")),
    };
    match serde_json::from_str::<Value>(body) {
        Ok(Value::Object(_)) if (200..300).contains(&status) => Verdict::Done,
        Ok(Value::Object(problem)) if is_clear(status, away, &problem) => Verdict::Refused,
        _ => {
            let shown: String = body.chars().take(SHOWN_MAX).collect();
            Verdict::Unclear(format!("status {status} and {shown:?}"))
        }
    }
}

/// Whether an error says what is away, and when to come again.
fn is_clear(status: u16, away: Away, problem: &Map<String, Value>) -> bool {
    let text = |name: &str| problem.get(name).and_then(Value::as_str).unwrap_or_default();
    let (code, detail) = (text("code"), text("detail"));
    let (known, what) = away.said();
    let names_it = code == known && detail.contains(what);
    let again = problem.get("retry_after").is_some_and(Value::is_u64);
    status == 503 && again && names_it && !detail.contains("panicked")
}

#[cfg(test)]
mod tests;
