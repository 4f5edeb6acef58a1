//! Rows on their way to the store.
//!
//! Facts about attempts are gathered while requests are under way and sent together: batches are small when the shard
//! is idle and grow with the load. What is not acknowledged is sent again, the same bytes, until it is: after a growing wait
//! with chance in it, so that shards do not come in step, and one request at a time while the store answers none, so that
//! what it cannot take is not multiplied. The first request of an intake batch is not held up: there are few.
//!
//! An end that nobody waits for goes along with a start that is about to come: at a handful of tasks a second nothing else
//! would gather, and client and server pay by the request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::model::{Boot, Place, Row, limits};

use super::Engine;
use super::effect::{Effect, Observation};
use super::input::Failure;
use super::view::Pause;

/// What an acknowledged row means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The start of this attempt.
    Started(u64),
    /// The end of this attempt.
    Ended(u64),
    /// A task closed without an attempt.
    Closed(Place),
    /// The dead letter of a task whose end is this attempt's, or this closing's.
    Letter(u64),
    /// An intake batch.
    Batch(u64),
    /// A pointer to a task, asked for under this ticket, with the row of the list that covers it.
    Pointed { place: Place, asked: u64, listed: Option<u64> },
    /// A row of the list of late queues.
    Listed(u64),
}

#[derive(Debug)]
struct Request {
    rows: Arc<[Row]>,
    purposes: Vec<Purpose>,
    tries: u32,
    resend_at: Option<Boot>,
    /// The last failure was one that a person has to mend.
    misconfigured: bool,
}

impl Request {
    /// Of intake: sent under the lease only. What a sleeper puts on record when it wakes, the next owner has not read.
    fn is_batch(&self) -> bool {
        matches!(self.purposes.first(), Some(Purpose::Batch(_)))
    }

    /// Whether it may be sent, again or at last, under a lease or without.
    fn may_go(&self, leased: bool) -> bool {
        leased || !self.is_batch()
    }

    fn is_under_way(&self) -> bool {
        self.resend_at.is_none()
    }
}

/// Rows waiting and requests under way.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// Rows that wait, and what they are for: so many each, which travel in one request.
    waiting: VecDeque<Row>,
    purposes: VecDeque<(usize, Purpose)>,
    /// Until when all that waits may wait for more.
    patient_until: Option<Boot>,
    requests: BTreeMap<u64, Request>,
    /// Requests in a row that the store did not answer.
    unanswered: u32,
}

/// After so many requests in a row without an answer one at a time is tried, until the store answers.
const UNANSWERED_MAX: u32 = 3;
const RESEND_FIRST_MS: u64 = 100;
const RESEND_MS_MAX: u64 = 5_000;

impl Writes {
    /// A row that means something by itself.
    pub(super) fn push(&mut self, row: Row, purpose: Purpose) {
        self.hurry();
        self.waiting.push_back(row);
        self.purposes.push_back((1, purpose));
    }

    /// The same, and it may wait for others, at most until then.
    pub(super) fn push_patient(&mut self, row: Row, purpose: Purpose, until: Option<Boot>) {
        let before = if self.waiting.is_empty() { until } else { self.patient_until };
        self.push(row, purpose);
        self.patient_until = before.zip(until).map(|(before, until)| before.min(until));
    }

    /// Rows that mean something only when all of them are stored.
    pub(super) fn push_all(&mut self, rows: Vec<Row>, purpose: Purpose) {
        debug_assert!(!rows.is_empty(), "nobody would answer for {purpose:?}");
        self.hurry();
        self.purposes.push_back((rows.len(), purpose));
        self.waiting.extend(rows);
    }

    /// What waits goes as soon as it can.
    pub(super) fn hurry(&mut self) {
        self.patient_until = None;
    }

    /// When something is to be sent that waits for time alone.
    pub(super) fn next_send(&self, now: Boot, leased: bool) -> Option<Boot> {
        [self.next_retry(leased), self.next_alone(now)].into_iter().flatten().min()
    }

    /// When what may wait for others goes without them.
    fn next_alone(&self, now: Boot) -> Option<Boot> {
        self.patient_until.filter(|until| *until > now)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.requests.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Writes::default();
    }

    /// Of an intake that is given up.
    pub(super) fn forget_batches(&mut self) {
        self.requests.retain(|_, request| !request.is_batch());
    }

    /// Takes back the starts that were not sent yet.
    fn take_back_starts(&mut self) -> Vec<u64> {
        let mut starts = Vec::new();
        if !self.purposes.iter().any(|(_, purpose)| matches!(purpose, Purpose::Started(_))) {
            return starts;
        }
        let mut rows = std::mem::take(&mut self.waiting).into_iter();
        self.purposes.retain(|(count, purpose)| {
            let of_it = rows.by_ref().take(*count);
            if let Purpose::Started(seq) = purpose {
                of_it.for_each(drop);
                starts.push(*seq);
                return false;
            }
            self.waiting.extend(of_it);
            true
        });
        starts
    }

    /// Whether the store answers nothing.
    fn is_silent(&self) -> bool {
        self.unanswered >= UNANSWERED_MAX
    }

    /// Whether a request is under way that will tell whether the store answers again.
    fn is_probing(&self) -> bool {
        self.is_silent() && self.requests.values().any(Request::is_under_way)
    }

    /// Takes note of an answer, or that there was none. What waits goes at once when the store answers again.
    fn note_answer(&mut self, now: Boot, is_answered: bool) {
        if !is_answered {
            self.unanswered = self.unanswered.saturating_add(1);
            return;
        }
        if self.is_silent() {
            let waiting = self.requests.values_mut().filter_map(|request| request.resend_at.as_mut());
            waiting.for_each(|at| *at = now.min(*at));
        }
        self.unanswered = 0;
    }

    /// When something that failed is to be sent again, under a lease or without.
    fn next_retry(&self, leased: bool) -> Option<Boot> {
        if self.is_probing() {
            return None;
        }
        let may_go = self.requests.values().filter(|request| request.may_go(leased));
        may_go.filter_map(|request| request.resend_at).min()
    }

    /// What requests that failed and wait to be sent again ran into.
    pub(super) fn stuck(&self) -> Option<Pause> {
        let mut failed = self.requests.values().filter(|request| request.tries > 0).peekable();
        failed.peek()?;
        let misconfigured = failed.any(|request| request.misconfigured);
        Some(if misconfigured { Pause::StoreMisconfigured } else { Pause::StoreUnavailable })
    }

    fn facts_under_way(&self) -> usize {
        self.requests.values().filter(|request| !request.is_batch()).count()
    }

    fn next_group(&mut self, now: Boot, leased: bool) -> Option<(Arc<[Row]>, Vec<Purpose>)> {
        let tells = |request: &Request| request.may_go(leased) || request.is_under_way();
        if self.is_silent() && self.requests.values().any(tells) {
            return None;
        }
        let waits_for_others = self.next_alone(now).is_some();
        if self.waiting.is_empty()
            || waits_for_others
            || self.facts_under_way() >= limits::WRITES_IN_FLIGHT_MAX
        {
            return None;
        }
        let (mut rows, mut purposes) =
            (0, Vec::with_capacity(self.purposes.len().min(limits::WRITE_ROWS_MAX)));
        while let Some((count, purpose)) = self.purposes.front().copied()
            && (rows == 0 || rows + count <= limits::WRITE_ROWS_MAX)
        {
            self.purposes.pop_front();
            rows += count;
            purposes.push(purpose);
        }
        let rows: Vec<Row> = self.waiting.drain(..rows).collect();
        if self.waiting.is_empty() {
            self.waiting.shrink_to(limits::WRITE_ROWS_MAX);
        }
        Some((rows.into(), purposes))
    }
}

impl Engine {
    pub(super) fn flush_writes(&mut self) {
        let may_call = self.may_call();
        // The next owner may have read what such a start would open again.
        if !may_call {
            for seq in self.writes.take_back_starts() {
                self.not_started(seq);
            }
        }
        if !may_call || !self.ownership.assigned() {
            self.writes.hurry();
        }
        let now = self.now.boot;
        let leased = self.ownership.valid(now) || planted!(GroupWithoutLease);
        while let Some((rows, purposes)) = self.writes.next_group(now, leased) {
            self.send_rows(rows, purposes);
        }
        let (is_silent, mut is_probing) = (self.writes.is_silent(), self.writes.is_probing());
        for (ticket, request) in &mut self.writes.requests {
            if is_probing {
                break;
            }
            if request.may_go(leased) && request.resend_at.is_some_and(|at| at <= now) {
                request.resend_at = None;
                self.effects.push_back(Effect::Write(*ticket, request.rows.clone()));
                is_probing = is_silent;
            }
        }
    }

    /// Sends the rows of an intake batch.
    pub(super) fn write_batch(&mut self, batch: u64, rows: Vec<Row>) {
        self.send_rows(rows.into(), vec![Purpose::Batch(batch)]);
    }

    fn send_rows(&mut self, rows: Arc<[Row]>, purposes: Vec<Purpose>) {
        let ticket = self.ticket();
        self.effects.push_back(Effect::Write(ticket, rows.clone()));
        self.writes
            .requests
            .insert(ticket, Request { rows, purposes, tries: 0, resend_at: None, misconfigured: false });
    }

    pub(super) fn written(&mut self, ticket: u64, written: Result<(), Failure>) {
        let now = self.now.boot;
        let Some(request) = self.writes.requests.get(&ticket) else { return };
        let (rows, purpose, tries) = (request.rows.clone(), request.purposes.first().copied(), request.tries);
        self.writes.note_answer(now, !matches!(written, Err(Failure::Unavailable(_))));
        if let Some(Purpose::Batch(batch)) = purpose {
            let refused = match &written {
                Err(Failure::RowRefused(index, _)) if tries == 0 => Some(*index),
                Ok(()) | Err(_) => None,
            };
            self.marks_are_out(batch, &rows, refused);
        }
        let failure = match written {
            Ok(()) => return self.acknowledge(ticket),
            Err(failure) => failure,
        };
        if let Some(Purpose::Batch(batch)) = purpose
            && let Some((index, detail)) = self.refused_row(batch, &rows, &failure)
        {
            self.writes.requests.remove(&ticket);
            return self.row_refused(batch, &rows, index, detail);
        }
        let chance = self.draw();
        let Some(request) = self.writes.requests.get_mut(&ticket) else { return };
        let longest = (RESEND_FIRST_MS << request.tries.min(10)).min(RESEND_MS_MAX);
        let wait = longest / 2 + chance % (longest / 2 + 1);
        request.tries = request.tries.saturating_add(1);
        request.misconfigured = matches!(failure, Failure::Misconfigured(_) | Failure::RowRefused(..));
        request.resend_at = Some(now.plus_ms(wait));
        self.trouble("store write", &failure);
    }

    /// The row of a batch for which its event is to be rejected, which only an owner may do. When the event's mark may be on
    /// record it is not: the task that it stops is stopped, and whoever runs the store has to make it take the rest.
    fn refused_row<'a>(&self, batch: u64, rows: &[Row], failure: &'a Failure) -> Option<(usize, &'a str)> {
        match failure {
            Failure::Misconfigured(detail) if planted!(GuardRailRejects) => Some((0, detail)),
            Failure::RowRefused(index, detail) if self.ownership.valid(self.now.boot) => {
                let has_to = rows.get(*index).is_some_and(|row| self.has_to_be_stored(batch, row));
                (!has_to).then_some((*index, detail))
            }
            _ => None,
        }
    }

    fn acknowledge(&mut self, ticket: u64) {
        let Some(request) = self.writes.requests.remove(&ticket) else { return };
        if !request.is_batch() {
            self.tell_facts(&request.rows);
        }
        for purpose in request.purposes {
            match purpose {
                Purpose::Started(seq) => self.start_written(seq),
                Purpose::Ended(seq) => self.end_written(seq),
                Purpose::Closed(place) => self.finish(place),
                Purpose::Letter(seq) => self.letter_written(seq),
                Purpose::Batch(batch) => self.batch_written(batch),
                Purpose::Pointed { place, asked, listed } => self.pointed(place, asked, listed),
                Purpose::Listed(seq) => self.listed(seq),
            }
        }
    }

    pub(super) fn trouble(&mut self, what: &'static str, failure: &Failure) {
        let detail = match failure {
            Failure::Unavailable(text) | Failure::Misconfigured(text) | Failure::OffsetGone(text) => {
                text.clone()
            }
            Failure::RowRefused(index, text) => format!("row {index}: {text}"),
        };
        self.observe(Observation::Trouble { what, detail });
    }
}
