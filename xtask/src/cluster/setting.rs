//! Settings of a server that are other than planned, from one start to the next.

use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result};

/// `KEY=VALUE` for server.properties or cassandra.yaml; without a value the key is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    key: String,
    value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let (key, value) = text.split_once('=').ok_or("KEY=VALUE, or KEY= to leave it out")?;
        Ok(Setting { key: key.trim().to_owned(), value: value.trim().to_owned() })
    }
}

/// Changes a configuration that was written as planned. `between` stands between a key and its value.
pub(super) fn change(file: &Path, between: &str, settings: &[Setting]) -> Result<()> {
    let place = || format!("{}", file.display());
    let text = std::fs::read_to_string(file).with_context(place)?;
    std::fs::write(file, changed(&text, between, settings)).with_context(place)
}

fn changed(text: &str, between: &str, settings: &[Setting]) -> String {
    let is_changed = |line: &str| {
        let key = line.split(between.trim_end()).next().unwrap_or_default();
        settings.iter().any(|one| one.key == key)
    };
    let kept = text.lines().filter(|line| !is_changed(line)).map(str::to_owned);
    let new = settings.iter().filter(|one| !one.value.is_empty());
    let new = new.map(|one| format!("{}{between}{}", one.key, one.value));
    kept.chain(new).map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_takes_the_place_of_the_planned_one_or_leaves_it_out() {
        let settings = ["paxos_variant=v1", "rack=", "new=[A, B]"].map(|one| one.parse().unwrap());
        let planned = "a: 1\npaxos_variant: v2\nrack: r1\nracks: 3\n";
        assert_eq!(changed(planned, ": ", &settings), "a: 1\nracks: 3\npaxos_variant: v1\nnew: [A, B]\n");
        assert!("novalue".parse::<Setting>().is_err());
    }
}
