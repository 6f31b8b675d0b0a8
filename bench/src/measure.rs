//! What is measured, in groups that can be run alone.

mod burst;
mod command_load;
mod commands;
mod fleet;
mod footprint;
mod hub;
mod latency;
mod pi_server;
mod records;
mod runs;
mod stream;
mod wire;

use std::path::PathBuf;
use std::pin::Pin;

use crate::error::{Outcome, failed};
use crate::report::Report;

/// What to run.
pub(crate) struct Plan {
    pub(crate) qd: PathBuf,
    pub(crate) is_quick: bool,
    /// Names of groups; all when empty.
    pub(crate) only: Vec<String>,
    pub(crate) out: PathBuf,
}

impl Plan {
    /// The greater number, or a tenth of it in a quick run.
    fn size(&self, full: usize) -> usize {
        if self.is_quick { full / 10 } else { full }
    }
}

type Measuring<'a> = Pin<Box<dyn Future<Output = Outcome<()>> + 'a>>;
type Group = (&'static str, for<'a> fn(&'a Plan, &'a mut Report) -> Measuring<'a>);

pub(crate) const GROUPS: [Group; 11] = [
    ("stream", |plan, report| Box::pin(stream::measure(plan, report))),
    ("hub", |plan, report| Box::pin(hub::measure(plan, report))),
    ("latency", |plan, report| Box::pin(latency::measure(plan, report))),
    ("commands", |plan, report| Box::pin(commands::measure(plan, report))),
    ("pi_server", |plan, report| Box::pin(pi_server::measure(plan, report))),
    ("runs", |plan, report| Box::pin(runs::measure(plan, report))),
    ("records", |plan, report| Box::pin(records::measure(plan, report))),
    ("footprint", |plan, report| Box::pin(footprint::measure(plan, report))),
    ("burst", |plan, report| Box::pin(burst::measure(plan, report))),
    ("fleet", |plan, report| Box::pin(fleet::measure(plan, report))),
    ("wire", |plan, report| Box::pin(wire::measure(plan, report))),
];

/// Measures, prints as it goes, writes the file at the end.
pub(crate) async fn run(plan: Plan) -> Outcome<()> {
    for name in &plan.only {
        if !GROUPS.iter().any(|(group, _)| group == name) {
            return failed(format!("there is no group '{name}'"));
        }
    }
    let mut report = Report::new(plan.is_quick);
    report.print_head()?;
    for (name, measure) in GROUPS {
        if plan.only.is_empty() || plan.only.iter().any(|only| only == name) {
            let first = report.rows.len();
            measure(&plan, &mut report).await?;
            report.print(first)?;
        }
    }
    report.write(&plan.out)
}

/// The value below which `share` of the sorted values lie.
fn percentile(sorted: &[u64], share: f64) -> f64 {
    let index = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default() as f64
}
