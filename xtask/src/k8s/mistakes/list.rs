//! The mistakes.

use super::{Judge, Mistake};
use serde_json::{Value, json};

const UNKNOWN: &str = "field not declared in schema";
/// What makes pods when every component is there.
const WORKLOAD: (&str, &str) = ("StatefulSet", "");

/// Those of an installation with servers and every component.
pub(in crate::k8s) fn all() -> Vec<Mistake> {
    let mut all = of_fields();
    all.extend(of_operators());
    all.extend(of_pods());
    all.extend(of_names());
    all.extend(of_configuration());
    all
}

/// Those of an installation without servers.
pub(in crate::k8s) fn embedded() -> Vec<Mistake> {
    let of = |what, judge, of, place, value, says| Mistake { what, judge, of, place, value, says };
    let file = |what, text, says| {
        of(what, Judge::Dueline, ("ConfigMap", "dueline-config"), "/data/dueline.toml", json!(text), says)
    };
    let mount = json!({"name": "date", "mountPath": "/var/lib/date"});
    vec![
        file(
            "a listener without tokens, embedded",
            "[http]\nlisten = \"0.0.0.0:7420\"\n",
            "http.access is not set",
        ),
        file(
            "a handler on its own events",
            "[[handler]]\nname = \"a\"\nkind = \"topic\"\ntopic = \"dueline.events\"\n",
            "one of Dueline's own topics",
        ),
        file("a server, embedded", "[kafka]\nbrokers = \"k:9092\"\n", "cassandra.nodes is not set"),
        file(
            "a token that is not mounted, embedded",
            "[[http.token]]\nname = \"a\"\nrole = \"admin\"\ntoken_file = \"/nowhere/a\"\n",
            "is not there",
        ),
        of("a volume of nothing", Judge::Admission, WORKLOAD, "CONTAINER/volumeMounts/-", mount, "Not found"),
        of("no servers", Judge::Dueline, WORKLOAD, "CONTAINER/args", json!(["serve"]), "kafka.brokers"),
    ]
}

fn of_fields() -> Vec<Mistake> {
    let of = |what, kind, place, value, says| Mistake {
        what,
        judge: Judge::Api,
        of: (kind, ""),
        place,
        value,
        says,
    };
    let in_pods = |what, place, value, says| of(what, WORKLOAD.0, place, value, says);
    vec![
        in_pods("a misspelt field", "/spec/replica", json!(3), UNKNOWN),
        in_pods("a misspelt probe", "CONTAINER/readynessProbe", json!({}), UNKNOWN),
        in_pods("a word for a number", "/spec/replicas", json!("three"), "expected numeric"),
        in_pods(
            "labels of other pods",
            "/spec/template/metadata/labels",
            json!({"a": "b"}),
            "does not match",
        ),
        in_pods("a probe of nothing", "CONTAINER/livenessProbe", json!({"periodSeconds": 1}), "handler type"),
        in_pods(
            "no time to stop",
            "POD/terminationGracePeriodSeconds",
            json!(3),
            "less than terminationGracePeriodSeconds",
        ),
        of("a second bound", "PodDisruptionBudget", "/spec/minAvailable", json!(1), "cannot be both set"),
        of(
            "a port that is none",
            "NetworkPolicy",
            "/spec/egress",
            json!([{"ports": [{"port": 70000}]}]),
            "65535",
        ),
        of("an unknown direction", "NetworkPolicy", "/spec/policyTypes", json!(["Out"]), "Unsupported value"),
    ]
}

fn of_operators() -> Vec<Mistake> {
    let of = |what, kind, place, value, says| Mistake {
        what,
        judge: Judge::Api,
        of: (kind, ""),
        place,
        value,
        says,
    };
    vec![
        of("a misspelt bound", "ScaledObject", "/spec/maxReplicas", json!(3), UNKNOWN),
        of("a scaler that asks nothing", "ScaledObject", "/spec/triggers", Value::Null, "Required value"),
        of("a misspelt endpoint", "PodMonitor", "/spec/podMetricsEndpoint", json!([]), UNKNOWN),
        of("a misspelt setting", "Kafka", "/spec/kafka/confg", json!({}), UNKNOWN),
        of(
            "an unknown listener",
            "Kafka",
            "/spec/kafka/listeners/0/type",
            json!("inside"),
            "Unsupported value",
        ),
        of("an unknown role", "KafkaNodePool", "/spec/roles", json!(["leader"]), "Unsupported value"),
        of("misspelt partitions", "KafkaTopic", "/spec/partition", json!(64), UNKNOWN),
        of("no partition", "KafkaTopic", "/spec/partitions", json!(0), "greater than or equal to 1"),
        of(
            "an unknown right",
            "KafkaUser",
            "/spec/authorization/acls/0/operations",
            json!(["Reed"]),
            "Unsupported value",
        ),
        of("a misspelt cluster", "K8ssandraCluster", "/spec/casandra", json!({}), UNKNOWN),
        of(
            "an unknown server",
            "CassandraDatacenter",
            "/spec/serverType",
            json!("casandra"),
            "Unsupported value",
        ),
    ]
}

fn of_pods() -> Vec<Mistake> {
    let of = |what, place, value, says| Mistake {
        what,
        judge: Judge::Admission,
        of: WORKLOAD,
        place,
        value,
        says,
    };
    let escalate = "CONTAINER/securityContext/allowPrivilegeEscalation";
    let host = json!({"name": "host", "hostPath": {"path": "/"}});
    vec![
        of("a privileged container", "CONTAINER/securityContext/privileged", json!(true), "privileged"),
        of("the root user", "POD/securityContext/runAsUser", json!(0), "must not set runAsUser=0"),
        of(
            "a user that may be root",
            "POD/securityContext/runAsNonRoot",
            Value::Null,
            "runAsNonRoot != true",
        ),
        of("no seccomp profile", "POD/securityContext/seccompProfile", Value::Null, "seccompProfile"),
        of(
            "capabilities that are kept",
            "CONTAINER/securityContext/capabilities",
            Value::Null,
            "unrestricted cap",
        ),
        of(
            "a further capability",
            "CONTAINER/securityContext/capabilities/add",
            json!(["NET_ADMIN"]),
            "NET_ADMIN",
        ),
        of("a way to more privileges", escalate, Value::Null, "allowPrivilegeEscalation != false"),
        of("the host's network", "POD/hostNetwork", json!(true), "host namespaces"),
        of("a folder of the host", "POD/volumes/-", host, "restricted volume types"),
        of("an account that is not there", "POD/serviceAccountName", json!("nobody"), "\"nobody\" not found"),
    ]
}

fn of_names() -> Vec<Mistake> {
    let of =
        |what, kind, place, value, says| Mistake { what, judge: Judge::Names, of: kind, place, value, says };
    let read_only = "CONTAINER/securityContext/readOnlyRootFilesystem";
    vec![
        of(
            "a probe's wrong port",
            WORKLOAD,
            "CONTAINER/livenessProbe/httpGet/port",
            json!("web"),
            "asks port web",
        ),
        of(
            "no such ConfigMap",
            WORKLOAD,
            "POD/volumes/-",
            json!({"configMap": {"name": "x"}}),
            "no ConfigMap x",
        ),
        of("a root that is written to", WORKLOAD, read_only, json!(false), "can be written"),
        of("a token", WORKLOAD, "POD/automountServiceAccountToken", json!(true), "mounts a token"),
        of("a probe too few", WORKLOAD, "CONTAINER/startupProbe", Value::Null, "lacks a probe"),
        of("no such key", ("ConfigMap", "dueline-place"), "/data", json!({"a": "b"}), "has no key"),
        of(
            "a service of other pods",
            ("Service", ""),
            "/spec/selector",
            json!({"a": "b"}),
            "no pod is meant",
        ),
        of(
            "a service's wrong port",
            ("Service", ""),
            "/spec/ports/0/targetPort",
            json!("web"),
            "no port web",
        ),
        of(
            "a scaler of nothing",
            ("ScaledObject", ""),
            "/spec/scaleTargetRef/name",
            json!("x"),
            "there is no",
        ),
        of("a namespace for all", ("Namespace", ""), "/metadata/labels", json!({}), "does not enforce"),
    ]
}

fn of_configuration() -> Vec<Mistake> {
    let file = |what, text, says| Mistake {
        what,
        judge: Judge::Dueline,
        of: ("ConfigMap", "dueline-config"),
        place: "/data/dueline.toml",
        value: json!(text),
        says,
    };
    let variable = |what, name, value, says| Mistake {
        what,
        judge: Judge::Dueline,
        of: WORKLOAD,
        place: "CONTAINER/env/-",
        value: json!({"name": name, "value": value}),
        says,
    };
    vec![
        file("an unknown key", "[kafka]\nbroker = \"k:9092\"\n", "kafka.broker"),
        file("a duration without unit", "[ownership]\nlease = 6\n", "ownership.lease"),
        file("a handler not there yet", "[[handler]]\nname = \"a\"\nkind = \"grpc\"\n", "grpc"),
        file("a listener without tokens", "[http]\nlisten = \"0.0.0.0:7420\"\n", "http.access is not set"),
        file(
            "a token that is not mounted",
            "[http]\nlisten = \"0.0.0.0:7420\"\n[[http.token]]\nname = \"a\"\nrole = \"admin\"\ntoken_file = \"/nowhere/a\"\n",
            "is not there",
        ),
        variable("an unknown variable", "DUELINE_KAFKA_BROKER", "k:9092", "DUELINE_KAFKA_BROKER"),
        variable("a setting that is fixed", "DUELINE_KAFKA_PRODUCER_ACKS", "1", "acks"),
        variable("a lease too short", "DUELINE_OWNERSHIP_LEASE", "1s", "DUELINE_OWNERSHIP_LEASE"),
        variable(
            "a variable of nothing",
            "DUELINE_HTTP_ADVERTISE",
            "http://$(NO):7420",
            "stands nowhere before",
        ),
    ]
}
