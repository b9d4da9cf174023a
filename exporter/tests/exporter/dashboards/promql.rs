//! Parses PromQL: the series that an expression selects, and the labels of its result.

use std::collections::BTreeSet;

use promql_parser::parser::{Expr, LabelModifier, VectorSelector};
use volt_diagnosis::catalog;

use crate::dashboards::files;

/// Labels that Prometheus adds, and those of a page of several programs.
const ADDED: [&str; 4] = ["job", "instance", "program", "pid"];

/// One selector of an expression.
#[derive(Debug)]
pub(crate) struct Selected {
    pub(crate) name: String,
    /// (label, value), for every operator.
    pub(crate) matchers: Vec<(String, String)>,
    /// Whether it is the argument of `rate` or `increase`.
    pub(crate) is_rate: bool,
}

/// Parses the expression, with Grafana's interval variable replaced.
pub(crate) fn parse(expression: &str) -> Expr {
    let plain = expression.replace("$__rate_interval", "1m");
    promql_parser::parser::parse(&plain).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// Returns every selector in the expression.
pub(crate) fn selected(expression: &str) -> Vec<Selected> {
    let mut found = Vec::new();
    select(&parse(expression), false, &mut found);
    assert!(!found.is_empty(), "selects nothing: {expression}");
    found
}

fn select(expression: &Expr, is_rate: bool, found: &mut Vec<Selected>) {
    let mut push = |selector: &VectorSelector| {
        let matchers = selector.matchers.matchers.iter().map(|matcher| (matcher.name.clone(), matcher.value.clone()));
        let name = selector.name.clone().expect("a selector names its metric");
        found.push(Selected { name, matchers: matchers.collect(), is_rate });
    };
    match expression {
        Expr::VectorSelector(selector) => push(selector),
        Expr::MatrixSelector(matrix) => push(&matrix.vs),
        Expr::Aggregate(aggregate) => select(&aggregate.expr, is_rate, found),
        Expr::Unary(unary) => select(&unary.expr, is_rate, found),
        Expr::Paren(paren) => select(&paren.expr, is_rate, found),
        Expr::Subquery(subquery) => select(&subquery.expr, is_rate, found),
        Expr::Binary(binary) => {
            select(&binary.lhs, is_rate, found);
            select(&binary.rhs, is_rate, found);
        }
        Expr::Call(call) => {
            let is_rate = is_rate || ["rate", "increase"].contains(&call.func.name);
            call.args.args.iter().for_each(|argument| select(argument, is_rate, found));
        }
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}

/// Returns the labels that every series of the result has.
pub(crate) fn labels(expression: &Expr) -> BTreeSet<String> {
    match expression {
        Expr::VectorSelector(selector) => labels_of(selector.name.as_deref().expect("a name")),
        Expr::MatrixSelector(matrix) => labels_of(matrix.vs.name.as_deref().expect("a name")),
        Expr::Aggregate(aggregate) => match &aggregate.modifier {
            Some(LabelModifier::Include(kept)) => kept.labels.iter().cloned().collect(),
            Some(LabelModifier::Exclude(lost)) => {
                let mut kept = labels(&aggregate.expr);
                kept.retain(|label| !lost.labels.contains(label));
                kept
            }
            None if aggregate.param.is_some() => labels(&aggregate.expr),
            None => BTreeSet::new(),
        },
        Expr::Unary(unary) => labels(&unary.expr),
        Expr::Paren(paren) => labels(&paren.expr),
        Expr::Subquery(subquery) => labels(&subquery.expr),
        Expr::Binary(binary) => match (&*binary.lhs, &*binary.rhs) {
            (Expr::NumberLiteral(_), of) | (of, Expr::NumberLiteral(_)) => labels(of),
            (left, _) => labels(left),
        },
        Expr::Call(call) => {
            let mut kept: BTreeSet<_> = call.args.args.iter().flat_map(|argument| labels(argument)).collect();
            if call.func.name == "histogram_quantile" {
                kept.remove("le");
            }
            kept
        }
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => BTreeSet::new(),
    }
}

/// Returns the labels of a series: a metric of the catalog, a recorded series, or Prometheus' own
/// `ALERTS`.
pub(crate) fn labels_of(series: &str) -> BTreeSet<String> {
    let own: Vec<String> = match catalog::find_series(series) {
        Some(metric) => {
            let le = series.ends_with("_bucket").then_some("le");
            metric.labels.iter().copied().chain(le).map(String::from).collect()
        }
        None if series == "ALERTS" => ["alertname", "alertstate", "runtime", "worker"].map(String::from).to_vec(),
        None => {
            let rules = files::rules("prometheus/volt-rules.yml");
            let (.., expression, _) = rules
                .into_iter()
                .find(|(name, ..)| name == series)
                .unwrap_or_else(|| panic!("{series} is neither in the catalog nor recorded by a rule"));
            return labels(&parse(&expression));
        }
    };
    own.into_iter().chain(ADDED.map(String::from)).collect()
}

#[test]
fn an_unknown_metric_is_found_at_any_position() {
    for expression in
        ["sum(rate(volt_nothing_total[5m]))", "1 - volt_nothing", "topk(3, volt_tasks_alive or volt_nothing)"]
    {
        let names: Vec<_> = selected(expression).into_iter().map(|selected| selected.name).collect();
        assert!(names.iter().any(|name| catalog::find_series(name).is_none()), "{names:?}");
    }
}

#[test]
fn labels_are_followed_through_sums_and_quantiles() {
    let of = |expression: &str| labels(&parse(expression)).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(of("sum by (worker) (rate(volt_worker_polls_total[1m])) * 60"), "worker");
    assert_eq!(
        of("histogram_quantile(0.9, rate(volt_poll_duration_seconds_bucket[1m]))"),
        "instance job pid program runtime"
    );
    assert_eq!(of("sum without (worker) (volt_worker_parked)"), "instance job pid program runtime");
    assert_eq!(of("sum(volt_worker_parked)"), "");
}
