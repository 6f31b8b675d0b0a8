//! The table and the JSON file.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::clock::wall_nanoseconds;
use crate::error::Outcome;

/// One figure, beside the raw one it is compared with.
#[derive(Serialize, Default)]
pub(crate) struct Row {
    pub(crate) group: &'static str,
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) raw: Option<f64>,
    pub(crate) raw_name: &'static str,
    pub(crate) ratio: Option<f64>,
    pub(crate) target: String,
    pub(crate) met: Option<bool>,
    pub(crate) note: String,
}

/// What a figure should be.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    None,
    AtLeast(f64),
    AtMost(f64),
    RatioAtLeast(f64),
    RatioAtMost(f64),
}

#[derive(Serialize)]
pub(crate) struct Report {
    machine: Machine,
    is_quick: bool,
    unix_seconds: u64,
    pub(crate) rows: Vec<Row>,
}

#[derive(Serialize)]
struct Machine {
    cores: usize,
    processor: String,
    kernel: String,
    load_before: String,
    load_after: String,
}

impl Report {
    pub(crate) fn new(is_quick: bool) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let machine = Machine {
            cores,
            processor: processor(),
            kernel: read("/proc/sys/kernel/osrelease"),
            load_before: read("/proc/loadavg"),
            load_after: String::new(),
        };
        Report { machine, is_quick, unix_seconds: wall_nanoseconds() / 1_000_000_000, rows: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        group: &'static str,
        name: &str,
        value: f64,
        unit: &'static str,
    ) -> &mut Row {
        self.rows.push(Row { group, name: name.to_owned(), value, unit, ..Row::default() });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    pub(crate) fn print_head(&self) -> Outcome<()> {
        let machine = &self.machine;
        let mut out = std::io::stdout().lock();
        writeln!(
            out,
            "{} cores, {}, Linux {}, load {}",
            machine.cores, machine.processor, machine.kernel, machine.load_before
        )?;
        writeln!(out, "{:<44} {:>14} {:<14} {:>12} {:<16} {:>6}  target", "", "qd", "", "raw", "", "ratio")?;
        Ok(())
    }

    /// Prints the rows from `first` on.
    pub(crate) fn print(&self, first: usize) -> Outcome<()> {
        let mut out = std::io::stdout().lock();
        for row in &self.rows[first..] {
            let raw = row.raw.map(figure).unwrap_or_default();
            let ratio = row.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
            let met = match row.met {
                Some(true) => "ok",
                Some(false) => "MISSED",
                None => "",
            };
            writeln!(
                out,
                "{:<44} {:>14} {:<14} {raw:>12} {:<16} {ratio:>6}  {:<16} {met:<6} {}",
                row.name,
                figure(row.value),
                row.unit,
                row.raw_name,
                row.target,
                row.note
            )?;
        }
        out.flush()?;
        Ok(())
    }

    pub(crate) fn write(&mut self, path: &Path) -> Outcome<()> {
        self.machine.load_after = read("/proc/loadavg");
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::write(path, serde_json::to_string_pretty(self)?)?;
        writeln!(
            std::io::stdout().lock(),
            "load after: {}; written: {}",
            self.machine.load_after,
            path.display()
        )?;
        Ok(())
    }
}

impl Row {
    pub(crate) fn raw(&mut self, name: &'static str, value: f64) -> &mut Self {
        self.raw = Some(value);
        self.raw_name = name;
        self.ratio = Some(self.value / value);
        self
    }

    pub(crate) fn target(&mut self, target: Target) -> &mut Self {
        let ratio = self.ratio.unwrap_or(f64::NAN);
        let (text, met) = match target {
            Target::None => return self,
            Target::AtLeast(limit) => (format!(">= {}", figure(limit)), self.value >= limit),
            Target::AtMost(limit) => (format!("<= {}", figure(limit)), self.value <= limit),
            Target::RatioAtLeast(limit) => (format!("ratio >= {limit}"), ratio >= limit),
            Target::RatioAtMost(limit) => (format!("ratio <= {limit}"), ratio <= limit),
        };
        self.target = text;
        self.met = Some(met);
        self
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) -> &mut Self {
        self.note = note.into();
        self
    }
}

/// A number a person can read.
fn figure(value: f64) -> String {
    match value.abs() {
        large if large >= 100_000.0 => format!("{:.0}k", value / 1000.0),
        large if large >= 1000.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn processor() -> String {
    let text = read("/proc/cpuinfo");
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, name)| name.trim()).to_owned()
}
