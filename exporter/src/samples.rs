//! The samples of every metric of the catalog, for each collection.
//!
//! Who writes: [`Samples::read`], under `&mut`. Kept from collection to collection are, for each
//! runtime, which spawn locations have series ([`Locations`]), and, for each process, the findings
//! of one that does not judge itself ([`Watch`]); both also while the process is silent.

use std::collections::HashMap;

use volt_diagnosis::catalog::{Locations, METRICS, Sample};
use volt_diagnosis::doctor::watch::Watch;
use volt_telemetry::snapshot::Process;
use volt_telemetry::text::is_invisible;

/// What the series of one process are told apart by from those of others: values of
/// [`ORIGIN_LABELS`], or nothing where there is one process.
pub(crate) type Origin = Vec<String>;

/// The labels that a page of several processes adds.
pub(crate) const ORIGIN_LABELS: [&str; 2] = ["program", "pid"];

/// A runtime from its building to its end: another one of the same name counts from 0 again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Life {
    pub(crate) origin: Origin,
    pub(crate) name: String,
    pub(crate) started_at_ns: u64,
}

impl Life {
    /// Those of a process's runtimes, in their order.
    pub(crate) fn all<'a>(origin: &'a Origin, process: &'a Process) -> impl Iterator<Item = Life> + 'a {
        process.runtimes.iter().map(|runtime| Life {
            origin: origin.clone(),
            name: runtime.runtime.clone(),
            started_at_ns: runtime.started_at_ns,
        })
    }
}

/// See the header of this file.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// Of every runtime of the last collection.
    locations: HashMap<Life, Locations>,
    /// Of every process of the last collection.
    watches: HashMap<Origin, Watch>,
}

impl Samples {
    /// For each metric of the catalog, its samples of all processes and runtimes, with the values
    /// of its own labels and then of the origin's; `None` for a process that did not answer.
    pub(crate) fn read(&mut self, processes: &[(Origin, Option<&Process>)]) -> Vec<Vec<Sample>> {
        let mut former_locations = std::mem::take(&mut self.locations);
        let mut former_watches = std::mem::take(&mut self.watches);
        let mut read = vec![Vec::new(); METRICS.len()];
        for (origin, process) in processes {
            let with_origin = |mut sample: Sample| {
                sample.labels.extend_from_slice(origin);
                sample.labels.iter_mut().for_each(make_harmless);
                sample
            };
            for (metric, read) in METRICS.iter().zip(&mut read) {
                read.extend(metric.samples_of_process(*process).into_iter().map(with_origin));
            }
            // One that could not tell of its runtimes has none.
            let Some(process) = process.filter(|process| !process.runtimes.is_empty()) else {
                // It may answer the next time, and its counters are to go on from where they were.
                self.locations.extend(former_locations.extract_if(|life, _| life.origin == *origin));
                // So are its findings, whose history would begin anew.
                self.watches.extend(former_watches.remove_entry(origin));
                continue;
            };
            let mut watch = former_watches.remove(origin).unwrap_or_default();
            let process = watch.filled(process);
            self.watches.insert(origin.clone(), watch);
            for (runtime, life) in process.runtimes.iter().zip(Life::all(origin, &process)) {
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

/// Writes out what a terminal that shows the page would obey, or what would turn a line of it
/// around: names of programs and runtimes come from the programs. Written out and not taken out, so
/// that two labels that differ stay two; for that reason the backslash of a name that reads as if
/// it were written out is written out, too.
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
    fn a_silent_process_keeps_what_was_known_of_it() {
        const SECOND: u64 = 1_000_000_000;
        // An older one, that does not judge itself, and was paused once between two readings.
        let paused = |second: u64, pauses: u64| {
            let sentinel = Sentinel { pauses, ..Sentinel::default() };
            let runtime = Snapshot { at_ns: second * SECOND, sentinel, ..Snapshot::default() };
            Process { runtimes: vec![runtime], ..Process::default() }
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
    fn no_label_holds_what_a_terminal_would_obey() {
        let runtime = Snapshot { runtime: "a\u{1b}[2J\u{202e}b\n".to_owned(), ..Snapshot::default() };
        let process = Process { runtimes: vec![runtime], ..Process::default() };
        let origin = vec!["evil\u{1b}]0;x\u{7}\u{200b}".to_owned(), "7".to_owned()];
        let read = Samples::default().read(&[(origin, Some(&process))]);
        let labels = || read.iter().flatten().flat_map(|sample| &sample.labels);
        assert!(labels().any(|label| label == r"evil\u{1b}]0;x\u{7}\u{200b}"));
        assert!(labels().any(|label| label == r"a\u{1b}[2J\u{202e}b\u{a}"));
        assert!(!labels().any(|label| label.contains(|c: char| c.is_control() || c == '\u{202e}' || c == '\u{200b}')));
    }
}
