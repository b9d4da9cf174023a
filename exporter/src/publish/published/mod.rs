//! The numbers that the recorder has received so far, and the publication of one collection.
//!
//! A *life* is the time from the creation of a runtime to its shutdown. Another runtime of the same
//! name has the same series, and counts from 0.
//!
//! Ownership: [`Published::publish`] has `&mut` access. The thread that publishes owns it, and
//! passes it on to the next such thread: see [`publisher`](super::publisher).

use std::collections::HashMap;
use std::ptr;

use metrics::Recorder;
use volt_diagnosis::catalog::{METRICS, Metric, Value};
use volt_diagnosis::exposition::{Life, Origin, Samples};
use volt_telemetry::snapshot::Program;

use super::series::{Histograms, Keys, Output, describe};

/// The label of all metrics that are not about the program.
const RUNTIME: &str = "runtime";

/// The settings of a publication.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// The names of the runtimes; `None` means all.
    pub(super) runtimes: Option<Vec<String>>,
    pub(super) histograms: Histograms,
}

/// The numbers that the recorder has received. See the header of this file.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// The number of publications.
    round: u64,
    /// The address of the recorder, and which parts of histograms were described to it.
    described: Option<(usize, Histograms)>,
    samples: Samples,
    /// For each metric of the catalog, its series by the values of their labels. Contains those of
    /// the last publication, and all others of current runtimes: they may come back, and their
    /// counters must then continue.
    series: Vec<HashMap<Vec<String>, Series>>,
}

#[derive(Debug)]
struct Series {
    keys: Keys,
    /// The life that `last` belongs to.
    life: u64,
    /// The last publication that contained it.
    round: u64,
    /// The value that was published last, if the next publication needs it.
    last: Option<Value>,
}

/// The current lives by their label, and whether they are published.
type Lives = HashMap<String, (u64, bool)>;

impl Published {
    /// Publishes `program` into `recorder`, and calls `pause` between batches of updates.
    pub(super) fn publish(
        &mut self,
        program: &Program,
        settings: &Settings,
        recorder: &dyn Recorder,
        pause: &mut dyn FnMut(),
    ) {
        let mut output = Output::new(recorder, pause);
        self.attach(recorder, settings.histograms, &mut output);
        self.round += 1;
        let lives = lives(program, settings);
        let samples = self.samples.read(&[(Origin::new(), Some(program))]);
        self.series.resize_with(METRICS.len(), HashMap::new);
        for ((metric, samples), series) in METRICS.iter().zip(samples).zip(&mut self.series) {
            for sample in samples {
                let Some((life, true)) = life_of(metric, &sample.labels, &lives) else { continue };
                let one = series.entry(sample.labels).or_insert_with_key(|labels| {
                    let keys = Keys::new(metric, labels, settings.histograms);
                    Series { keys, life, round: 0, last: None }
                });
                one.last.take_if(|_| one.life != life);
                one.keys.publish(&sample.value, one.last.as_ref(), &mut output);
                one.last = one.keys.needs_last().then_some(sample.value);
                (one.life, one.round) = (life, self.round);
            }
            series.retain(|labels, one| {
                if one.round + 1 == self.round {
                    one.keys.clear(&mut output);
                }
                one.round == self.round || life_of(metric, labels, &lives).is_some_and(|(life, _)| life == one.life)
            });
        }
    }

    /// Describes the metrics to a new recorder, which has received nothing yet.
    fn attach(&mut self, recorder: &dyn Recorder, histograms: Histograms, output: &mut Output<'_>) {
        // `metrics` allows a program to install one recorder, which then stays at its address.
        // Until then, there is one that does nothing, at another address.
        let address = ptr::from_ref(recorder).cast::<()>().addr();
        let described = self.described.replace((address, histograms));
        if described == self.described {
            return;
        }
        describe(recorder, histograms);
        match described {
            // Another publisher has begun, which publishes other parts of histograms.
            Some((same, _)) if same == address => {
                for series in &mut self.series {
                    series.retain(|_, one| {
                        let stays = !one.keys.is_histogram();
                        if !stays {
                            one.keys.clear(output);
                        }
                        stays
                    });
                }
            }
            _ => self.series.clear(),
        }
    }
}

fn lives(program: &Program, settings: &Settings) -> Lives {
    let origin = Origin::new();
    let is_published = |name: &String| settings.runtimes.as_ref().is_none_or(|names| names.contains(name));
    Life::all(&origin, program).map(|life| (life.label(), (life.started_at_ns, is_published(&life.name)))).collect()
}

/// Returns the life that a series belongs to, and whether it is published. `None` if that runtime
/// was shut down. The program itself has one life.
fn life_of(metric: &Metric, labels: &[String], lives: &Lives) -> Option<(u64, bool)> {
    match metric.labels.iter().position(|label| *label == RUNTIME) {
        Some(at) => lives.get(&labels[at]).copied(),
        None => Some((0, true)),
    }
}

#[cfg(test)]
mod tests;
