//! A task in words. Its payload and result belong to others: they are shown as they were sent, and never read, so that
//! whatever was accepted can be shown.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::client::{Client, read, task_path};
use crate::cli::output::{self, Format};

/// What is shown, in this order.
const SHOWN: [&str; 16] = [
    "queue",
    "id",
    "state",
    "reason",
    "due_at",
    "next_at",
    "expires_at",
    "handler",
    "priority",
    "collection",
    "labels",
    "created_by",
    "shard",
    "payload",
    "result",
    "result_cut",
];
const OF_OTHERS: [&str; 2] = ["payload", "result"];

/// Shows a task.
pub(in crate::cli) async fn run(
    client: &Client,
    format: Format,
    queue: &str,
    id: &str,
) -> anyhow::Result<()> {
    let text = client.get_text(&task_path(queue, id)?, &[]).await?;
    match format {
        Format::Text => output::text(&words(&text)?),
        Format::Json | Format::Jsonl => output::text(&text),
    }
}

/// The words for an answer.
///
/// # Errors
/// It is no task.
fn words(answer: &str) -> anyhow::Result<String> {
    let task: BTreeMap<String, &RawValue> = read(answer)?;
    let mut lines = String::new();
    for name in SHOWN {
        let Some(raw) = task.get(name).filter(|raw| raw.get() != "null" || OF_OTHERS.contains(&name)) else {
            continue;
        };
        let shown = if OF_OTHERS.contains(&name) { as_sent(raw) } else { text(&read(raw.get())?) };
        lines.push_str(&format!("{name:<10} {shown}\n"));
    }
    for attempt in list(&task, "attempts")? {
        lines.push_str(&format!("{}\n", line_of_attempt(&attempt)));
    }
    for event in list(&task, "events")? {
        let (at, reason) = (text(&event["appended_at"]), given(&event["reason"], " (", ")"));
        let (verb, decision) = (text(&event["verb"]), text(&event["decision"]));
        lines.push_str(&format!("event      {at}  {verb}: {decision}{reason}\n"));
    }
    for earlier in list(&task, "earlier")? {
        let (state, due) = (text(&earlier["state"]), text(&earlier["due_at"]));
        let closed = given(&earlier["closed"]["at"], " at ", "");
        lines.push_str(&format!(
            "before     due {due}, {state}{}{closed}\n",
            given(&earlier["reason"], " (", ")")
        ));
        for attempt in earlier["attempts"].as_array().into_iter().flatten() {
            lines.push_str(&format!("  {}\n", line_of_attempt(attempt)));
        }
    }
    Ok(lines)
}

fn line_of_attempt(attempt: &Value) -> String {
    let outcome = attempt["outcome"].as_str().unwrap_or("open");
    let at = text(&attempt["started_at"]);
    format!("attempt {}  {at}  {outcome}{}", attempt["attempt"], given(&attempt["error"], ": ", ""))
}

/// A text between two others; nothing when there is none.
fn given(value: &Value, before: &str, behind: &str) -> String {
    value.as_str().map(|text| format!("{before}{text}{behind}")).unwrap_or_default()
}

/// A text that can be read is shown without its quotes.
fn as_sent(raw: &RawValue) -> String {
    serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| raw.get().to_owned())
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn list(task: &BTreeMap<String, &RawValue>, name: &str) -> anyhow::Result<Vec<Value>> {
    task.get(name).map_or_else(|| Ok(Vec::new()), |raw| read(raw.get()))
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn a_payload_is_shown_as_it_was_sent() {
        let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
        for payload in ["1e999", "\"\\ud800\"", "{\"a\":1,\"a\":2}", "12345678901234567890", "null", &deep] {
            let answer =
                format!("{{\"queue\":\"q\",\"next_at\":null,\"payload\":{payload},\"result\":{payload}}}");
            let shown = words(&answer).expect(payload);
            assert_eq!(shown, format!("queue      q\npayload    {payload}\nresult     {payload}\n"));
        }
        assert_eq!(words("{\"payload\":\"text\"}").expect("a task"), "payload    text\n");
        assert!(words("[]").is_err());
    }
}
