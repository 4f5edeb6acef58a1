//! `dueline instance`: which there are, and draining one, or all of a data centre.

use std::time::Instant;

use serde_json::{Value, json};

use super::client::{Client, entries};
use super::task::{many, one};
use super::wait::{self, Patience};
use super::{Global, output};

/// Look at instances, drain them before maintenance and let them work again.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List instances with a heartbeat in the last hour, and what is drained.
    #[command(after_help = "Example: dueline instance list")]
    List,
    Drain(Drain),
    /// Undo a drain: what was drained is given shards again.
    #[command(after_help = "Example: dueline instance undrain --dc dc2 --reason \"maintenance is over\"")]
    Undrain(Place),
}

#[derive(Debug, clap::Args)]
pub(super) struct Place {
    /// The name of an instance.
    #[arg(required_unless_present = "dc", conflicts_with = "dc")]
    instance: Option<String>,
    /// All instances of a data centre, those that start later too.
    #[arg(long)]
    dc: Option<String>,
    /// Who: the user name when not given.
    #[arg(long, env = "USER", hide_env_values = true)]
    by: Option<String>,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
}

/// Drain an instance, or all of a data centre: its shards go to the others in good order, and it takes none until that is undone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: dueline instance drain --dc dc2 --reason \"maintenance of dc2\"")]
pub(super) struct Drain {
    #[command(flatten)]
    place: Place,
    /// Even if no instance is left to run the shards; for admins.
    #[arg(long)]
    force: bool,
    /// Do not wait until its shards run elsewhere.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    patience: Patience,
}

pub(super) async fn run(global: &Global, verb: Verb) -> anyhow::Result<()> {
    let client = Client::new(global)?;
    match verb {
        Verb::List => {
            let found = client.get("/v1/instances", &[]).await?;
            for drain in unseen(&found) {
                eprint!("nobody seen in what is drained: {}", line_of_drain(drain));
            }
            many(global.output, entries(&found["instances"]), "no instances", line_of_instance)
        }
        Verb::Drain(drain) => drained(global, &client, drain).await,
        Verb::Undrain(place) => {
            let answer = client.post("/v1/instances:undrain", place.body().to_string(), None).await?;
            one(global.output, &answer, undrained)
        }
    }
}

async fn drained(global: &Global, client: &Client, drain: Drain) -> anyhow::Result<()> {
    let Drain { place, force, no_wait, patience } = drain;
    let patience = patience.duration()?;
    let mut body = place.body();
    body["force"] = json!(force);
    let answer = client.post("/v1/instances:drain", body.to_string(), None).await?;
    let instances: Vec<&str> = entries(&answer["instances"]).iter().filter_map(Value::as_str).collect();
    if instances.is_empty() {
        eprintln!("nobody of it is alive now: there is nobody to wait for, and who comes back is drained");
    } else if !no_wait {
        // Somebody is, unless it was forced: so it is taken when it cannot be asked.
        let found = client.get("/v1/instances", &[]).await;
        let elsewhere = found.map_or(true, |found| somebody_is_left(&found));
        let until = Instant::now() + patience;
        Wait { instances, elsewhere, until }.run(client).await?;
    }
    one(global.output, &answer, |drain| format!("drained: {}", line_of_drain(drain)))
}

impl Place {
    fn body(self) -> Value {
        let mut body = json!({});
        let given = [("instance", self.instance), ("dc", self.dc), ("by", self.by), ("reason", self.reason)];
        for (name, value) in given {
            if let Some(value) = value {
                body[name] = json!(value);
            }
        }
        body
    }
}

/// Until the shards of what was drained are elsewhere.
struct Wait<'a> {
    instances: Vec<&'a str>,
    /// Whether somebody is left to run them.
    elsewhere: bool,
    until: Instant,
}

impl Wait<'_> {
    /// Says on stderr how many are left, whenever that changes.
    async fn run(&self, client: &Client) -> anyhow::Result<()> {
        // The instance that is asked may be the one whose shards move.
        let look = |shards: &[Value]| {
            let left = self.left(shards);
            (self.is_done(left), self.words(left))
        };
        let stands = "the drain stands, and goes on; `dueline shard list` says who has what";
        eprintln!("{}", wait::for_shards(client, self.until, look, stands).await?);
        Ok(())
    }

    /// Shards that the drained ones still have, and shards that nobody runs. One that is stopped waits for a person,
    /// wherever it is.
    fn left(&self, shards: &[Value]) -> (usize, usize) {
        let is_theirs =
            |shard: &&Value| shard["owner"].as_str().is_some_and(|owner| self.instances.contains(&owner));
        let runs = |shard: &&Value| matches!(shard["phase"].as_str(), Some("running" | "stopped"));
        let theirs = shards.iter().filter(is_theirs).count();
        let others = shards.iter().filter(|shard| !is_theirs(shard) && !runs(shard)).count();
        (theirs, others)
    }

    fn is_done(&self, (theirs, unrun): (usize, usize)) -> bool {
        theirs == 0 && (unrun == 0 || !self.elsewhere)
    }

    fn words(&self, (theirs, unrun): (usize, usize)) -> String {
        let left = if theirs == 0 { "no shard left".to_owned() } else { format!("{theirs} shards left") };
        let others = match unrun {
            0 if theirs == 0 => ", all run elsewhere".to_owned(),
            0 => String::new(),
            _ if self.elsewhere => format!(", {unrun} not running elsewhere yet"),
            _ => format!("; {unrun} run nowhere, nobody is left to run them"),
        };
        format!("{}: {left}{others}", self.instances.join(", "))
    }
}

/// Whether an instance is alive that is not drained.
fn somebody_is_left(found: &Value) -> bool {
    entries(&found["instances"])
        .iter()
        .any(|one| one["alive"] == Value::Bool(true) && !one["drained"].is_object())
}

/// Drains that no instance in the list is in.
fn unseen(found: &Value) -> impl Iterator<Item = &Value> {
    let seen = |drain: &Value| {
        let is_in = |one: &Value| {
            let own = if drain["target"] == "dc" { &one["dc"] } else { &one["name"] };
            *own == drain["of"]
        };
        entries(&found["instances"]).iter().any(is_in)
    };
    entries(&found["drains"]).iter().filter(move |drain| !seen(drain))
}

fn line_of_instance(one: &Value) -> String {
    let text = |name: &str| one[name].as_str().unwrap_or("-").to_owned();
    let alive = if one["alive"] == Value::Bool(true) { "alive" } else { "silent" };
    let mut line =
        format!("{}  {}  {}  {alive}  seen {}", text("name"), text("dc"), text("advertise"), text("seen_at"));
    if one["drained"].is_object() {
        line.push_str(&format!("  drained: {}", line_of_drain(&one["drained"]).trim_end()));
    }
    output::on_one_line(&line)
}

/// A drain that was undone, and whom another one keeps away all the same, a line each.
fn undrained(answer: &Value) -> String {
    let mut text = format!("undrained: {}", line_of_drain(answer));
    for also in entries(&answer["also_drained"]) {
        let name = also["instance"].as_str().unwrap_or("-");
        let line = format!("{name} stays drained: {}", line_of_drain(&also["drain"]).trim_end());
        text.push_str(&output::on_one_line(&line));
    }
    text
}

/// A drain, on one line.
fn line_of_drain(drain: &Value) -> String {
    let text = |name: &str| drain[name].as_str().unwrap_or("-").to_owned();
    let mut line = format!("{} {}  since {}", text("target"), text("of"), text("since"));
    for (name, word) in [("by", "by"), ("reason", "-")] {
        if let Some(value) = drain[name].as_str() {
            line.push_str(&format!("  {word} {value}"));
        }
    }
    output::on_one_line(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(owner: Option<&str>, phase: &str) -> Value {
        json!({"owner": owner, "phase": phase})
    }

    #[test]
    fn a_drain_is_done_when_all_shards_run_elsewhere() {
        let wait = |elsewhere| Wait { instances: vec!["a", "b"], elsewhere, until: Instant::now() };
        let shards = [
            shard(Some("a"), "running"),
            shard(Some("b"), "unknown"),
            shard(Some("c"), "catching_up"),
            shard(None, "free"),
            shard(Some("c"), "running"),
            shard(Some("c"), "stopped"),
        ];
        assert_eq!(wait(true).left(&shards), (2, 2));
        assert_eq!(wait(true).left(&shards[4..]), (0, 0));
        for (left, elsewhere, is_done, words) in [
            ((2, 1), true, false, "a, b: 2 shards left, 1 not running elsewhere yet"),
            ((2, 0), true, false, "a, b: 2 shards left"),
            ((0, 1), true, false, "a, b: no shard left, 1 not running elsewhere yet"),
            ((0, 0), true, true, "a, b: no shard left, all run elsewhere"),
            ((2, 1), false, false, "a, b: 2 shards left; 1 run nowhere, nobody is left to run them"),
            ((0, 3), false, true, "a, b: no shard left; 3 run nowhere, nobody is left to run them"),
        ] {
            let wait = wait(elsewhere);
            assert_eq!((wait.is_done(left), &*wait.words(left)), (is_done, words));
        }
    }

    #[test]
    fn somebody_is_left_who_is_alive_and_not_drained() {
        let page = |alive: bool, drained: Value| json!({"instances": [{"alive": alive, "drained": drained}]});
        assert!(somebody_is_left(&page(true, Value::Null)));
        assert!(!somebody_is_left(&page(false, Value::Null)));
        assert!(!somebody_is_left(&page(true, json!({"target": "dc"}))));
    }

    #[test]
    fn who_stays_away_when_a_drain_is_undone_is_told() {
        let drain = json!({"target": "dc", "of": "dc2", "since": "now"});
        let answer = json!({
            "target": "instance", "of": "i-2", "since": "then", "drained": false, "instances": ["i-2"],
            "also_drained": [{"instance": "i-2", "drain": drain}]
        });
        let text = undrained(&answer);
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            ["undrained: instance i-2  since then", "i-2 stays drained: dc dc2  since now"]
        );
    }

    #[test]
    fn a_drain_in_which_nobody_is_seen_is_told_apart() {
        let found = json!({
            "instances": [{"name": "a", "dc": "dc1"}],
            "drains": [{"target": "dc", "of": "dc1"}, {"target": "instance", "of": "a"}, {"target": "dc", "of": "a"}]
        });
        let told: Vec<_> = unseen(&found).map(|drain| drain["target"].as_str()).collect();
        assert_eq!(told, [Some("dc")]);
    }

    #[test]
    fn what_is_stored_adds_no_line_of_its_own() {
        let forged = "x\nz  dc1  http://z  alive\u{1b}[2K";
        let drain = json!({"target": "dc", "of": forged, "since": "now", "by": forged, "reason": forged});
        let instance = json!({"name": forged, "dc": forged, "drained": drain});
        let answer = json!({"also_drained": [{"instance": forged, "drain": drain}]});
        assert_eq!(undrained(&answer).lines().count(), 2);
        for line in [line_of_drain(&drain), line_of_instance(&instance)] {
            let body = line.strip_suffix('\n').expect("a line");
            assert!(!body.contains(char::is_control), "{line:?}");
        }
    }
}
