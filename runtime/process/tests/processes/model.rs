//! Random operations on a few processes, compared with a simple model of the events that each must
//! receive. There are three fixed seeds and a fresh one, which a failing test prints.
//!
//! After each operation, the model predicts which processes are alive and which events each of them
//! received. The order of events that one exit causes is not defined, so they are compared as a
//! set.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use volt_process::MonitorId;

const OPERATIONS: usize = 300;

/// A command for a process, sent as a call.
enum Do {
    Monitor(Pid),
    Demonitor(MonitorId),
    Link(Pid),
    Unlink(Pid),
    Done,
    Fail,
}

/// Records the events that it receives, as text.
#[derive(Default)]
struct Recorder {
    context: Option<Context>,
    log: Vec<String>,
}

fn down(monitor: MonitorId, pid: Pid, reason: &ExitReason) -> String {
    format!("{monitor:?} {pid} is down: {reason}")
}

fn exit(pid: Pid, reason: &ExitReason) -> String {
    format!("{pid} exits: {reason}")
}

impl Process for Recorder {
    fn init(&mut self, context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        self.context = Some(context.clone());
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        let Some(context) = &self.context else { unreachable!("it was begun") };
        for event in events {
            match event {
                Event::Message(message) => {
                    let mut answer = Payload::empty();
                    match message.payload.downcast::<Do>() {
                        Ok(Do::Monitor(pid)) => answer = Payload::new(context.monitor(pid)),
                        Ok(Do::Demonitor(monitor)) => context.demonitor(monitor),
                        Ok(Do::Link(pid)) => context.link(pid),
                        Ok(Do::Unlink(pid)) => context.unlink(pid),
                        Ok(Do::Done) => out.done(),
                        Ok(Do::Fail) => return Err(Failure::new("as requested")),
                        Err(payload) => match payload.downcast::<u32>() {
                            Ok(number) => self.log.push(number.to_string()),
                            Err(_) => answer = Payload::new(self.log.clone()),
                        },
                    }
                    if let Some(reply) = message.reply {
                        reply.send(answer);
                    }
                }
                Event::Down { monitor, pid, reason } => self.log.push(down(monitor, pid, &reason)),
                Event::Exit { pid, reason } => self.log.push(exit(pid, &reason)),
                Event::Cancel => out.done(),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The state of a live process in the model.
#[derive(Default)]
struct Alive {
    traps_exits: bool,
    links: BTreeSet<Pid>,
    watched: BTreeMap<MonitorId, Pid>,
    log: Vec<String>,
}

#[derive(Default)]
struct Model(BTreeMap<Pid, Alive>);

impl Model {
    fn of(&mut self, pid: Pid) -> &mut Alive {
        self.0.get_mut(&pid).expect("it lives")
    }

    fn ends(&mut self, pid: Pid, reason: &ExitReason) {
        if self.0.remove(&pid).is_none() {
            return;
        }
        let mut falls = Vec::new();
        for (other, alive) in &mut self.0 {
            let monitors: Vec<_> = alive.watched.iter().filter(|(_, watched)| **watched == pid).collect();
            let monitors: Vec<_> = monitors.into_iter().map(|(monitor, _)| *monitor).collect();
            for monitor in monitors {
                alive.watched.remove(&monitor);
                alive.log.push(down(monitor, pid, reason));
            }
            if alive.links.remove(&pid) {
                if alive.traps_exits {
                    alive.log.push(exit(pid, reason));
                } else if reason.is_abnormal() {
                    falls.push(*other);
                }
            }
        }
        for other in falls {
            self.ends(other, reason);
        }
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        // xorshift64*, Vigna.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

async fn request(system: &System, pid: Pid, what: Do) -> Payload {
    system.call(pid, Payload::new(what), LONG).await.unwrap()
}

/// Returns one live process, and another that may be dead.
fn two(rng: &mut Rng, model: &Model, all: &[Pid]) -> (Pid, Pid) {
    let one = *model.0.keys().nth(rng.below(model.0.len())).unwrap();
    (one, all[rng.below(all.len())])
}

async fn run(system: &System, seed: u64) {
    let (mut rng, mut model, mut all) = (Rng(seed), Model::default(), Vec::new());
    for number in 0..OPERATIONS {
        if model.0.len() < 2 || (model.0.len() < 6 && rng.below(3) == 0) {
            let traps_exits = rng.below(2) == 0;
            let spawn = Spawn::new(Recorder::default());
            let pid = system.spawn(if traps_exits { spawn.trap_exits() } else { spawn }).unwrap();
            all.push(pid);
            model.0.insert(pid, Alive { traps_exits, ..Alive::default() });
            continue;
        }
        // Dead processes are selected, too, but not more often than live ones.
        let recent = &all[all.len().saturating_sub(10)..];
        let (one, other) = two(&mut rng, &model, recent);
        let lives = model.0.contains_key(&other);
        match rng.below(10) {
            0..3 => {
                let monitor: MonitorId = request(system, one, Do::Monitor(other)).await.downcast().unwrap();
                if lives && one != other {
                    model.of(one).watched.insert(monitor, other);
                } else if !lives {
                    model.of(one).log.push(down(monitor, other, &ExitReason::NoProcess));
                }
            }
            3 => {
                let Some((&monitor, _)) = model.of(one).watched.first_key_value() else { continue };
                request(system, one, Do::Demonitor(monitor)).await;
                model.of(one).watched.remove(&monitor);
            }
            4..6 if one != other => {
                request(system, one, Do::Link(other)).await;
                if lives {
                    model.of(one).links.insert(other);
                    model.of(other).links.insert(one);
                } else if model.of(one).traps_exits {
                    model.of(one).log.push(exit(other, &ExitReason::NoProcess));
                } else {
                    model.ends(one, &ExitReason::NoProcess);
                }
            }
            6 => {
                request(system, one, Do::Unlink(other)).await;
                model.of(one).links.remove(&other);
                if lives {
                    model.of(other).links.remove(&one);
                }
            }
            7 => {
                for number in [number as u32, number as u32 + 1000] {
                    system.send(one, Payload::new(number)).await.unwrap();
                    model.of(one).log.push(number.to_string());
                }
            }
            8 => {
                let (what, reason) = match rng.below(2) {
                    0 => (Do::Done, ExitReason::Normal),
                    _ => (Do::Fail, ExitReason::Failed(Failure::new("as requested"))),
                };
                system.try_send(one, Payload::new(what)).unwrap();
                model.ends(one, &reason);
            }
            _ => {
                let ends = [(true, ExitReason::Killed), (false, ExitReason::Shutdown)];
                let (is_killed, reason) = &ends[rng.below(2)];
                assert!(if *is_killed { system.kill(one) } else { system.cancel(one) });
                model.ends(one, reason);
            }
        }
        until(|| system.process_count() == model.0.len()).await;
        for (pid, alive) in &mut model.0 {
            let mut log = Vec::new();
            while log.len() < alive.log.len() {
                log = system.call(*pid, Payload::empty(), LONG).await.unwrap().downcast::<Vec<String>>().unwrap();
            }
            let (mut is, mut wanted) = (log.clone(), alive.log.clone());
            is.sort();
            wanted.sort();
            assert_eq!(is, wanted, "seed {seed}, operation {number}, {pid}");
            let numbers = |log: &[String]| log.iter().filter_map(|text| text.parse().ok()).collect::<Vec<u32>>();
            assert_eq!(numbers(&log), numbers(&alive.log), "seed {seed}, operation {number}, {pid}: the order");
            // If an exit causes no event, the other side of the link may be removed a moment later.
            let links = alive.links.len();
            until(|| system.info(*pid).unwrap().link_count == links).await;
        }
        let watchers: usize = model.0.values().map(|alive| alive.watched.len()).sum();
        until(|| system.list().map(|info| info.monitor_count).sum::<usize>() == watchers).await;
    }
}

#[test]
fn random_operations_notify_as_the_model_does() {
    let fresh = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    println!("the fresh seed is {fresh}");
    with_system(async |system| {
        for seed in [1, 7, 8_191, fresh] {
            run(&system, seed).await;
            // Start the next seed without processes.
            let left: Vec<_> = system.list().map(|info| info.pid).collect();
            for pid in left {
                system.kill(pid);
            }
            until(|| system.process_count() == 0).await;
        }
    });
}
