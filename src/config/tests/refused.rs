//! What is refused, and in which words.

use super::Setup;
use crate::config::{Sources, load};

/// Checks that a file has just this problem.
fn check_problem(toml: &str, problem: &str) {
    assert_eq!(Setup::new(toml).problems(), [problem], "{toml}");
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_known_one() {
    check_problem(
        "[kafka]\nbrokers = \"k:9092\"\nsession_timout = \"6s\"\n",
        "dueline.toml:3: kafka.session_timout is not a key; did you mean kafka.session_timeout?",
    );
    check_problem("[kafak]\n", "dueline.toml:1: kafak is not a key; did you mean kafka?");
    check_problem("[[handlers]]\n", "dueline.toml:1: handlers is not a key; did you mean handler?");
    check_problem(
        "[[handler]]\nname = \"a\"\nkind = \"log\"\nretry.max_atempts = 3\n",
        "dueline.toml:4: retry.max_atempts is not a key; did you mean retry.max_attempts?",
    );
    check_problem("zzz = 1", "dueline.toml:1: zzz is not a key; docs/configuration.md has them all");
    let setup = Setup::new("").environment(&[
        ("DUELINE_KAFKA_BROKER", "k:9092"),
        ("DUELINE_SERVICE_HOST", "10.0.0.1"),
        ("DUELINE_TEST_KAFKA", "k:9092"),
        ("DUELINE_SIM_SEEDS", "0..9"),
        ("DUELINE_LONG", "1"),
        ("DUELINE_CONFIG", "x.toml"),
    ]);
    let problem = "environment DUELINE_KAFKA_BROKER: DUELINE_KAFKA_BROKER is not a variable of Dueline; did you mean DUELINE_KAFKA_BROKERS?";
    assert_eq!(setup.problems(), [problem]);
}

#[test]
fn tables_of_queues_say_something_of_one_queue_each() {
    let twice =
        "[[queue]]\nname = \"q\"\non_dead = \"stop\"\n[[queue]]\nname = \"q\"\non_failure = \"park\"\n";
    check_problem(twice, "dueline.toml:5: queue.name is \"q\" again: each queue has one table");
    check_problem(
        "[[queue]]\nname = \"q\"\n",
        "dueline.toml:2: queue.name is \"q\", and nothing is said of it: write on_failure or on_dead",
    );
    check_problem(
        "[[queue]]\nname = \"*\"\non_failure = \"park\"\n",
        "dueline.toml:2: queue.name is \"*\", which no other queues go by: what holds for all tasks of a handler is said there",
    );
    check_problem(
        "[[queue]]\non_failure = \"park\"\n",
        "dueline.toml:1: queue.name is missing: write name = …, the queue that tasks name",
    );
    check_problem(
        "[[queue]]\nname = \"q\"\non_failure = \"stop\"\non_dead = \"stop\"\n",
        "dueline.toml:3: on_failure must be one of \"block\", \"park\"; found \"stop\"",
    );
}

#[test]
fn a_value_out_of_bounds_or_of_another_type_is_refused_in_words() {
    for (toml, problem) in [
        (
            "[ownership]\nlease = 6",
            "ownership.lease must be a duration in quotes from \"3s\" to \"5m\"; found 6 without quotes",
        ),
        (
            "[ownership]\nlease = \"6\"",
            "ownership.lease must be a duration in quotes from \"3s\" to \"5m\"; found \"6\", which is not a duration such as \"10s\", \"1h30m\" or \"PT10M\"",
        ),
        (
            "[ownership]\nlease = \"1s\"",
            "ownership.lease must be a duration in quotes from \"3s\" to \"5m\"; found \"1s\"",
        ),
        ("[topics]\npartitions = 0", "topics.partitions must be a whole number from 1 to 10000; found 0"),
        (
            "[topics]\npartitions = \"64\"",
            "topics.partitions must be a whole number from 1 to 10000; found \"64\"",
        ),
        (
            "[topics]\nprefix = \"a b\"",
            "topics.prefix must be 1 to 200 letters, digits, \".\", \"_\" and \"-\"; found \"a b\"",
        ),
        (
            "[kafka]\nprotocol = \"share\"",
            "kafka.protocol must be one of \"classic\", \"consumer\"; found \"share\"",
        ),
        (
            "[kafka]\nbrokers = [\"k\"]",
            "kafka.brokers must be a text of one line, up to 4096 bytes; found a array",
        ),
    ] {
        check_problem(toml, &format!("dueline.toml:2: {problem}"));
    }
}

#[test]
fn a_list_an_address_or_a_name_of_another_form_is_refused_in_words() {
    for (toml, problem) in [
        (
            "[cassandra]\nnodes = []",
            "cassandra.nodes must be a list of 1 to 256 texts, none empty; found 0 of them",
        ),
        (
            "[cassandra]\nnodes = \"c1\"",
            "cassandra.nodes must be a list of 1 to 256 texts, none empty; found \"c1\"",
        ),
        (
            "[cassandra]\nkeyspace = \"Due\"",
            "cassandra.keyspace must be up to 48 small letters, digits and \"_\", a letter first; found \"Due\"",
        ),
        (
            "[log]\nfilter = \"dueline=loud\"",
            "log.filter must be a level like \"info\", or \"info,rdkafka=warn\"; found \"dueline=loud\"",
        ),
        (
            "[cassandra.replication]\ndc1 = 0",
            "cassandra.replication.dc1 must be a whole number from 1 to 15; found 0",
        ),
        (
            "[http]\nlisten = \"7420\"",
            "http.listen must be an address and a port like \"127.0.0.1:7420\"; found \"7420\"",
        ),
        (
            "[http]\nadvertise = \"dl-1:7420\"",
            "http.advertise must be an http or https URL; found \"dl-1:7420\", which has the scheme \"dl-1\"; only http and https are called",
        ),
        (
            "[cassandra]\nrequire_dc_loss_survival = \"yes\"",
            "cassandra.require_dc_loss_survival must be true or false; found \"yes\"",
        ),
    ] {
        check_problem(toml, &format!("dueline.toml:2: {problem}"));
    }
    check_problem("kafka = 1", "dueline.toml:1: kafka must be a table: write [kafka] and its keys below");
    check_problem(
        "[kafka.librdkafka]\nsecurity.protocol = \"SSL\"",
        "dueline.toml:2: kafka.librdkafka.security must be one value: a name with dots needs quotes, as in \"security.protocol\" = \"SSL\"",
    );
}

#[test]
fn a_collector_that_cannot_be_is_refused_and_no_secret_is_told() {
    for (toml, problem) in [
        (
            "endpoint = \"otel:4318\"",
            "endpoint must be an http or https URL; found \"otel:4318\", which has the scheme \"otel\"; only http and https are called",
        ),
        (
            "endpoint = \"http://me:hunter2@otel:4318\"",
            "endpoint must be an http or https URL; found one that holds credentials, which belong in a file of their own: secrets_file, otlp.headers",
        ),
        (
            "endpoint = \"grpc://me:hunter2@otel:4317\"",
            "endpoint must be an http or https URL; found one that is none, or that holds credentials",
        ),
        (
            "endpoint = \"http://otel:4318/?token=hunter2\"",
            "endpoint has a query, which would be shown: a token goes into otlp.headers, by a file",
        ),
        ("sample_percent = 101", "sample_percent must be a number from 0 to 100; found \"101\""),
        (
            "headers = \"a=b\"",
            "headers must be a table of free names: write [otlp.headers] and its entries below",
        ),
        (
            "headers = { a = \"hunter2\\n\" }",
            "headers.a must be a text of one line, up to 4096 bytes; found another",
        ),
        (
            "headers = { \"a b\" = \"hunter2\" }",
            "headers.a b is no name of an HTTP header: letters, digits and \"-\"",
        ),
        ("headers = { Host = \"hunter2\" }", "headers.Host is set by Dueline itself: remove it"),
        (
            "headers = { a = \"hunter2\", A = \"hunter2\" }",
            "headers.a is set twice, as \"a\" and as \"a_file\" or in capitals: remove one",
        ),
        (
            "headers = { a_file = \"/nowhere/token\" }",
            "headers.a_file names /nowhere/token, which cannot be read: No such file or directory (os error 2)",
        ),
    ] {
        check_problem(&format!("[otlp]\n{toml}"), &format!("dueline.toml:2: otlp.{problem}"));
    }
}

#[test]
fn what_is_not_toml_is_refused_with_its_line() {
    let problems = Setup::new("[kafka]\nbrokers = \"k\n").problems();
    assert!(problems[0].starts_with("dueline.toml:2: is not TOML: "), "{problems:?}");
    let missing = load(Sources { file: Some("/nowhere/dueline.toml".into()), ..Sources::default() });
    let text = missing.err().expect("no such file").to_string();
    assert!(text.starts_with("config file /nowhere/dueline.toml cannot be read: "), "{text}");
}

#[test]
fn everything_wrong_is_found_at_once() {
    let problems = Setup::new("[kafka]\nx = 1\nprotocol = 2\n[limits]\npayload_bytes = 1\n").problems();
    assert_eq!(problems.len(), 3, "{problems:?}");
    // Values, rules between keys, and handlers.
    let toml = "[limits]\npayload_bytes = 1\n[topics]\nreplication_factor = 1\n[[handler]]\nname = \"a\"\nkind = 3\n\
        [[handler]]\nname = \"b\"\nkind = \"http\"\n";
    let problems = Setup::new(toml).problems();
    let words = ["payload_bytes", "min_insync_replicas", "kind must be", "handler.url is missing"];
    let found = words.iter().filter(|word| problems.iter().any(|problem| problem.contains(**word)));
    assert_eq!((found.count(), problems.len()), (4, 4), "{problems:?}");
}

#[test]
fn rules_between_keys_are_kept() {
    for (toml, problem) in [
        (
            "[topics]\nreplication_factor = 1",
            "topics.min_insync_replicas is 2, but there are only 1 replicas (topics.replication_factor): nothing could be written",
        ),
        (
            "[cassandra]\nusername = \"u\"",
            "dueline.toml:2: cassandra.username needs a password: set cassandra.password_file or DUELINE_CASSANDRA_PASSWORD",
        ),
        (
            "[cassandra.tls]\nkey_file = \"k\"",
            "dueline.toml:2: cassandra.tls.key_file needs its certificate: set cassandra.tls.cert_file too",
        ),
        (
            "[retention]\nhistory = \"2d\"\nrepeat_window = \"2d\"",
            "dueline.toml:3: retention.repeat_window must be shorter than retention.history: a repeat is known by the history",
        ),
        (
            "[kafka.producer]\nacks = 1",
            "dueline.toml:2: kafka.producer.acks is set by Dueline itself, as its promises rest on it: remove it",
        ),
        (
            "[kafka.consumer]\n\"heartbeat.interval.ms\" = 1000",
            "dueline.toml:2: kafka.consumer.heartbeat.interval.ms is set by Dueline itself, as its promises rest on it: set kafka.session_timeout instead",
        ),
        (
            "[kafka.librdkafka]\n\"group.id\" = \"g\"",
            "dueline.toml:2: kafka.librdkafka.group.id is set by Dueline itself, as its promises rest on it: set kafka.group instead",
        ),
    ] {
        check_problem(toml, problem);
    }
}

#[test]
fn handlers_are_checked() {
    for (handler, problem) in [
        ("kind = \"log\"", "1: handler.name is missing: write name = …, the name that schedule events use"),
        (
            "name = \"a\"",
            "1: handler.kind is missing: write kind = …, one of \"http\", \"topic\", \"log\", \"in-process\"",
        ),
        (
            "name = \"a\"\nkind = \"grpc\"",
            "3: handler.kind \"grpc\" is not there yet: use \"http\", \"topic\", \"log\" or \"in-process\"",
        ),
        (
            "name = \"a\"\nkind = \"http\"",
            "1: handler.url is missing: write url = …, where the callback goes",
        ),
        (
            "name = \"a\"\nkind = \"log\"\nurl = \"http://x/\"",
            "4: handler.url is only for handlers of kind \"http\", and this one is of kind \"log\": remove it",
        ),
        (
            "name = \"http://x/\"\nkind = \"log\"",
            "2: handler.name looks like a URL: give the handler a name and put the URL into `url`",
        ),
        (
            "name = \"a\"\nkind = \"topic\"\ntopic = \"dueline.schedule\"",
            "4: handler.topic \"dueline.schedule\" is one of Dueline's own topics: produce to another",
        ),
        (
            "name = \"a\"\nkind = \"http\"\nurl = \"http://x/\"\nretryable = [\"302\"]",
            "5: handler.retryable \"302\" must lie in 200 to 299 or 400 to 599: redirects are never followed and always fatal",
        ),
        (
            "name = \"a\"\nkind = \"http\"\nurl = \"http://x/\"\nsucceeded = [\"2xx\", \"503\"]",
            "5: handler.succeeded makes 503 both a success and retryable: keep one",
        ),
        (
            "name = \"a\"\nkind = \"log\"\nretry.initial = \"1h\"",
            "4: handler.retry.initial is longer than retry.max, the longest wait",
        ),
        (
            "name = \"a\"\nkind = \"log\"\nretry.jitter = 1.5",
            "4: retry.jitter must be a number from 0 to 1; found \"1.5\"",
        ),
    ] {
        check_problem(&format!("[[handler]]\n{handler}"), &format!("dueline.toml:{problem}"));
    }
    let twice = "[[handler]]\nname = \"a\"\nkind = \"log\"\n[[handler]]\nname = \"a\"\nkind = \"log\"\n";
    check_problem(twice, "dueline.toml:5: handler.name is \"a\" again: each handler has a name of its own");
}

#[test]
fn a_secret_that_is_wrong_is_not_shown_either() {
    let shown = |setup: &Setup| setup.problems().join("\n");
    let text = shown(&Setup::new("[cassandra]\npassword = \"hunter2\"\n"));
    assert_eq!(
        text,
        "dueline.toml:2: cassandra.password is a secret and does not belong in this file: name a file with it, or set it in the environment"
    );
    let handler = "[[handler]]\nname = \"a\"\nkind = \"http\"\nurl = \"http://x/\"\n";
    let text = shown(&Setup::new(handler).environment(&[("DUELINE_HANDLER_A_SECRETS", "hunter2")]));
    assert_eq!(
        text,
        "environment DUELINE_HANDLER_A_SECRETS: handler.secrets secret 1 must have 16 to 512 bytes"
    );
    let text = shown(&Setup::new("").environment(&[("DUELINE_CASSANDRA_PASSWORD", "hunter2\n")]));
    assert_eq!(
        text,
        "environment DUELINE_CASSANDRA_PASSWORD: cassandra.password must be a text of one line; found another"
    );
    let text = shown(&Setup::new("[cassandra]\nusername = \"u\"\npassword_file = \"/nowhere/pw\"\n"));
    assert!(
        text.starts_with("dueline.toml:3: cassandra.password_file names /nowhere/pw, which cannot be read: "),
        "{text}"
    );
}
