//! Reads the samples of every metric of the catalog, once for each collection. A *sample* is one
//! value of a metric, with the values of its labels. Both pages and the OTLP push use this module.
//!
//! Ownership: [`Samples::read`] has `&mut` access. Two things are kept between collections. For
//! each runtime, it keeps which spawn locations have series ([`Locations`]). For each program that
//! does not compute its own findings, it keeps the findings so far ([`Watch`]). Both are also kept
//! while the program does not reply.

use std::collections::HashMap;

use volt_telemetry::snapshot::Program;
use volt_telemetry::text::is_invisible;

use crate::catalog::{Locations, METRICS, Sample};
use crate::doctor::watch::Watch;

/// The values of [`ORIGIN_LABELS`], which distinguish the series of one program from those of
/// others. Empty if the page shows a single program.
pub type Origin = Vec<String>;

/// The labels that a page of several programs adds.
pub const ORIGIN_LABELS: [&str; 2] = ["program", "pid"];

/// Returns the values of [`ORIGIN_LABELS`] of a program's series: its origin, with the characters
/// escaped that would control a terminal.
///
/// ```
/// use volt_diagnosis::exposition::origin_labels;
///
/// assert_eq!(origin_labels(&vec!["a\nb".into(), "7".into()]), [r"a\u{a}b", "7"]);
/// ```
pub fn origin_labels(origin: &Origin) -> Vec<String> {
    let mut labels = origin.clone();
    labels.iter_mut().for_each(make_harmless);
    labels
}

/// A runtime from its creation to its shutdown. Another runtime of the same name counts from 0
/// again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Life {
    /// The program that it belongs to.
    pub origin: Origin,
    /// Its name.
    pub name: String,
    /// When it was built, in ns on the clock of its program.
    pub started_at_ns: u64,
}

impl Life {
    /// Returns the lives of a program's runtimes, in their order.
    pub fn all<'a>(origin: &'a Origin, program: &'a Program) -> impl Iterator<Item = Life> + 'a {
        program.runtimes.iter().map(|runtime| Life {
            origin: origin.clone(),
            name: runtime.runtime.clone(),
            started_at_ns: runtime.started_at_ns,
        })
    }

    /// Returns the value of the label `runtime` of its series: its name, with the characters
    /// escaped that would control a terminal.
    ///
    /// ```
    /// use volt_diagnosis::exposition::{Life, Origin};
    ///
    /// let life = Life { origin: Origin::new(), name: "a\nb".into(), started_at_ns: 0 };
    /// assert_eq!(life.label(), r"a\u{a}b");
    /// ```
    pub fn label(&self) -> String {
        let mut label = self.name.clone();
        make_harmless(&mut label);
        label
    }
}

/// Reads samples, and keeps between collections which spawn locations have series, and the findings
/// of programs that do not compute their own.
#[derive(Debug, Default)]
pub struct Samples {
    /// Of every runtime of the last collection.
    locations: HashMap<Life, Locations>,
    /// Of every program of the last collection.
    watches: HashMap<Origin, Watch>,
}

impl Samples {
    /// Returns, for each metric of the catalog, its samples of all programs and runtimes. Each
    /// sample has the values of the metric's labels, then those of the origin's. `None` stands for
    /// a program that did not reply.
    ///
    /// The origins must differ, and so must the names of a program's runtimes: Prometheus rejects
    /// duplicate series.
    ///
    /// ```
    /// use volt_diagnosis::catalog::METRICS;
    /// use volt_diagnosis::exposition::{Origin, Samples};
    /// use volt_telemetry::Program;
    ///
    /// let samples = Samples::default().read(&[(Origin::new(), Some(&Program::default()))]);
    /// assert_eq!(samples.len(), METRICS.len());
    /// ```
    pub fn read(&mut self, programs: &[(Origin, Option<&Program>)]) -> Vec<Vec<Sample>> {
        let mut former_locations = std::mem::take(&mut self.locations);
        let mut former_watches = std::mem::take(&mut self.watches);
        let mut read = vec![Vec::new(); METRICS.len()];
        for (origin, program) in programs {
            let with_origin = |mut sample: Sample| {
                sample.labels.extend_from_slice(origin);
                sample.labels.iter_mut().for_each(make_harmless);
                sample
            };
            for (metric, read) in METRICS.iter().zip(&mut read) {
                read.extend(metric.samples_of_program(*program).into_iter().map(with_origin));
            }
            // A program that could not send a snapshot has no runtimes.
            let Some(program) = program.filter(|program| !program.runtimes.is_empty()) else {
                // It may reply the next time, and its counters must then continue where they were.
                self.locations.extend(former_locations.extract_if(|life, _| life.origin == *origin));
                // The history of its findings is kept for the same reason.
                self.watches.extend(former_watches.remove_entry(origin));
                continue;
            };
            let mut watch = former_watches.remove(origin).unwrap_or_default();
            let program = watch.filled(program);
            self.watches.insert(origin.clone(), watch);
            for (runtime, life) in program.runtimes.iter().zip(Life::all(origin, &program)) {
                let mut locations = former_locations.remove(&life).unwrap_or_default();
                locations.take(&runtime.blame);
                for (metric, read) in METRICS.iter().zip(&mut read) {
                    read.extend(metric.samples_with(runtime, &locations).into_iter().map(with_origin));
                }
                self.locations.insert(life, locations);
            }
        }
        read
    }
}

/// Escapes characters that would control a terminal that shows the page, or reverse the direction
/// of a line. Names of programs and runtimes come from those programs, so they can contain
/// anything.
///
/// Characters are escaped and not removed, so that different labels stay different. For the same
/// reason, the backslash of a name that looks like an escape is escaped too.
fn make_harmless(label: &mut String) {
    const WRITTEN: &str = "\\u{";
    let is_wild = |c: char| c.is_control() || is_invisible(c);
    if !label.contains(is_wild) && !label.contains(WRITTEN) {
        return;
    }
    let mut written = String::with_capacity(label.len());
    for (index, c) in label.char_indices() {
        if is_wild(c) || label[index..].starts_with(WRITTEN) {
            written.extend(c.escape_unicode());
        } else {
            written.push(c);
        }
    }
    *label = written;
}

#[cfg(test)]
mod tests {
    use volt_telemetry::snapshot::{Sentinel, Snapshot};

    use super::*;

    #[test]
    fn a_silent_program_keeps_its_findings() {
        const SECOND: u64 = 1_000_000_000;
        // An older program that computes no findings, and was paused once between two collections.
        let paused = |second: u64, pauses: u64| {
            let sentinel = Sentinel { pauses, ..Sentinel::default() };
            let runtime = Snapshot { at_ns: second * SECOND, sentinel, ..Snapshot::default() };
            Program { runtimes: vec![runtime], ..Program::default() }
        };
        let known = |samples: &Samples| {
            let mut watch = samples.watches[&Origin::new()].clone();
            watch.filled(&paused(37, 1)).runtimes[0].findings.iter().flatten().count()
        };
        let mut samples = Samples::default();
        samples.read(&[(Origin::new(), Some(&paused(20, 0)))]);
        samples.read(&[(Origin::new(), Some(&paused(35, 1)))]);
        assert_eq!(known(&samples), 1);
        samples.read(&[(Origin::new(), None)]);
        assert_eq!(known(&samples), 1, "it did not answer once");
        samples.read(&[]);
        assert!(samples.watches.is_empty(), "and is gone");
    }

    #[test]
    fn labels_that_differ_stay_different() {
        let written = |label: &str| {
            let mut label = label.to_owned();
            make_harmless(&mut label);
            label
        };
        assert_ne!(written("\u{1b}"), written(r"\u{1b}"));
        assert_eq!(written(r"\u{1b}"), r"\u{5c}u{1b}");
        let plain = r"C:\users\u\{}";
        assert_eq!(written(plain), plain);
    }

    #[test]
    fn no_label_contains_control_characters_of_terminals() {
        let runtime = Snapshot { runtime: "a\u{1b}[2J\u{202e}b\n".to_owned(), ..Snapshot::default() };
        let program = Program { runtimes: vec![runtime], ..Program::default() };
        let origin = vec!["evil\u{1b}]0;x\u{7}\u{200b}".to_owned(), "7".to_owned()];
        let read = Samples::default().read(&[(origin, Some(&program))]);
        let labels = || read.iter().flatten().flat_map(|sample| &sample.labels);
        assert!(labels().any(|label| label == r"evil\u{1b}]0;x\u{7}\u{200b}"));
        let life = Life::all(&Origin::new(), &program).next().unwrap().label();
        assert!(labels().any(|label| *label == life), "{life}");
        assert_eq!(life, r"a\u{1b}[2J\u{202e}b\u{a}");
        assert!(!labels().any(|label| label.contains(|c: char| c.is_control() || c == '\u{202e}' || c == '\u{200b}')));
    }
}
