//! What an expression asks for, held against what a scrape has.
//!
//! Labels come from three places: the metric itself, the configuration of the scrape (`TARGET`), and, for a recorded
//! metric, the `by` of its rule.

use std::collections::BTreeSet;

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{self, Expr, LabelModifier, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};

use super::scrape::Scrape;

/// Labels that a scrape puts to every series; `dc` where it is configured to, deploy/monitoring/README.md.
const TARGET: [&str; 4] = ["namespace", "job", "instance", "dc"];
/// Labels of what a rule records, and of metrics that Prometheus makes itself.
const RECORDED: [&str; 2] = ["namespace", "job"];
/// Metrics of Prometheus itself.
const OF_PROMETHEUS: [&str; 1] = ["up"];

/// What there is.
pub(crate) struct Known {
    pub(crate) scrape: Scrape,
    /// Names of recording rules.
    pub(crate) recorded: BTreeSet<String>,
}

/// What an expression asks for.
#[derive(Default)]
pub(crate) struct Asked {
    /// Metrics, in order of appearance.
    pub(crate) metrics: Vec<String>,
    /// Labels to group or to match by.
    pub(crate) grouping: Vec<String>,
    selectors: Vec<VectorSelector>,
}

impl ExprVisitor for Asked {
    type Error = String;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, String> {
        match expr {
            Expr::VectorSelector(selector) => self.select(selector)?,
            Expr::MatrixSelector(matrix) => self.select(&matrix.vs)?,
            Expr::Aggregate(aggregate) => self.group(aggregate.modifier.as_ref()),
            Expr::Binary(binary) => {
                self.group(binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref()));
            }
            _ => {}
        }
        Ok(true)
    }
}

impl Asked {
    /// Parses an expression.
    pub(crate) fn of(expression: &str) -> Result<Asked, String> {
        let mut asked = Asked::default();
        walk_expr(&mut asked, &parser::parse(expression)?)?;
        Ok(asked)
    }

    fn select(&mut self, selector: &VectorSelector) -> Result<(), String> {
        let name = selector.name.clone().ok_or("a selector without a metric's name")?;
        if !selector.matchers.or_matchers.is_empty() {
            return Err(format!("{name}: matchers joined by `or` are not checked"));
        }
        self.metrics.push(name);
        self.selectors.push(selector.clone());
        Ok(())
    }

    fn group(&mut self, modifier: Option<&LabelModifier>) {
        self.grouping.extend(modifier.into_iter().flat_map(|modifier| modifier.labels().labels.clone()));
    }
}

impl Known {
    /// Everything in the expression that there is not.
    pub(crate) fn missing(&self, expression: &str) -> Vec<String> {
        let asked = match Asked::of(expression) {
            Ok(asked) => asked,
            Err(error) => return vec![error],
        };
        let mut missing: Vec<String> =
            asked.selectors.iter().flat_map(|selector| self.missing_of(selector)).collect();
        for label in &asked.grouping {
            let is_there = asked.metrics.iter().any(|metric| self.has_label(metric, label));
            if !is_there {
                missing.push(format!("no metric here has a label {label}"));
            }
        }
        missing
    }

    fn has_label(&self, metric: &str, label: &str) -> bool {
        if self.recorded.contains(metric) {
            return RECORDED.contains(&label);
        }
        TARGET.contains(&label) || self.scrape.labels(metric).is_some_and(|labels| labels.contains_key(label))
    }

    fn missing_of(&self, selector: &VectorSelector) -> Vec<String> {
        let metric = selector.name.as_deref().unwrap_or_default();
        let is_known = self.recorded.contains(metric)
            || OF_PROMETHEUS.contains(&metric)
            || self.scrape.labels(metric).is_some();
        if !is_known {
            return vec![format!("no metric {metric}")];
        }
        let matchers = selector.matchers.matchers.iter();
        matchers.filter_map(|matcher| self.wrong(metric, matcher)).collect()
    }

    /// Why a matcher selects nothing.
    fn wrong(&self, metric: &str, matcher: &Matcher) -> Option<String> {
        let label = matcher.name.as_str();
        if !self.has_label(metric, label) {
            return Some(format!("{metric} has no label {label}"));
        }
        if matcher.value.starts_with('$') {
            let is_variable = TARGET.contains(&label);
            return (!is_variable).then(|| format!("{metric}: {label} is no variable"));
        }
        let values = self.scrape.labels(metric)?.get(label)?;
        for alternative in matcher.value.split('|') {
            if !values.iter().any(|value| takes(&matcher.op, label, alternative, value)) {
                return Some(format!("{metric}: {label} is never {alternative}: {values:?}"));
            }
        }
        let bounds = values.iter().filter(|value| takes(&matcher.op, label, &matcher.value, value)).count();
        (label == "le" && bounds != 1).then(|| format!("{metric}: {} takes {bounds} buckets", matcher.value))
    }
}

/// Whether a part of a matcher's pattern takes a value. The bound of a bucket is written `1` or, from Prometheus 3 on, `1.0`.
fn takes(op: &MatchOp, label: &str, pattern: &str, value: &str) -> bool {
    let forms =
        if label == "le" { vec![value.to_owned(), format!("{value}.0")] } else { vec![value.to_owned()] };
    let is_regex = matches!(op, MatchOp::Re(_) | MatchOp::NotRe(_));
    if !is_regex {
        return forms.iter().any(|form| form == pattern);
    }
    let Ok(Expr::VectorSelector(asked)) = parser::parse(&format!("x{{y=~\"{pattern}\"}}")) else {
        return false;
    };
    asked.matchers.matchers.iter().any(|matcher| forms.iter().any(|form| matcher.is_match(form)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = "m_bucket{handler=\"h\",le=\"1\"} 0\nm_bucket{handler=\"h\",le=\"10\"} 0\nn{reason=\"a\"} 0\nn{reason=\"b\"} 0\n";

    fn check(expression: &str, wanted: &str) {
        let known = Known { scrape: Scrape::read(SCRAPE), recorded: ["r:x".to_owned()].into() };
        let missing = known.missing(expression).join("; ");
        assert!(
            missing.contains(wanted) && missing.is_empty() == wanted.is_empty(),
            "{expression}: {missing:?}"
        );
    }

    #[test]
    fn what_is_there_passes() {
        check(
            "sum by (handler, dc) (rate(m_bucket{le=~\"1|1[.]0\", job=~\"$job\"}[5m])) > 2 * scalar(r:x)",
            "",
        );
        check("n{reason=~\"a|b\"} and on (instance) up == 0", "");
        check("n{reason!=\"a\"}", "");
    }

    #[test]
    fn what_is_not_there_is_named() {
        check("sum(nn)", "no metric nn");
        check("sum by (queue) (n)", "no metric here has a label queue");
        check("n{reason=~\"a|c\"}", "reason is never c");
        check("n{reason!=\"c\"}", "reason is never c");
        check("n{cause=\"a\"}", "n has no label cause");
        check("m_bucket{le=\"5\"}", "le is never 5");
        check("m_bucket{le=~\"1.*\"}", "takes 2 buckets");
        check("r:x{instance=\"a\"}", "r:x has no label instance");
        check("n{reason=~\"$reason\"}", "reason is no variable");
        check("sum(n", "paren");
    }
}
