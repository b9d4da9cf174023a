//! Decides which spawn locations have their own series, and counts for each series.
//!
//! A program spawns tasks in hundreds of places, and a few of them delay other tasks. A series for
//! each place would be hundreds of series. Series only for the current top places would come and
//! go, and their counters would jump. Therefore a location with a significant effect gets its own
//! series, as long as there are fewer than [`LOCATIONS_MAX`], and keeps it. All other locations
//! share the series [`OTHER`].
//!
//! Writer: a reader of snapshots keeps one [`Locations`] for each runtime, and updates it with each
//! snapshot. [`Metric::samples_with`](super::Metric::samples_with) reads it.
//!
//! # Invariants
//!
//! * *Counters only grow*: the counts of a location before it got its series stay in [`OTHER`].
//! * *Nothing is lost*: all series of a runtime add up to its blame table.
//! * *Bounded*: [`LOCATIONS_MAX`] series, and one entry for each location of the runtime's own
//!   table, which is bounded.
//!
//! # Rejected alternatives
//!
//! * The top locations of each scrape: series would vanish, and return with a jump that looks like
//!   a burst.
//! * Series in order of appearance: the locations that spawn first, at the start of the program,
//!   would get them.

use std::collections::HashMap;

use volt_telemetry::incident::Blame;
use volt_telemetry::listing::order;

/// Maximum number of spawn locations with their own series, per runtime.
pub const LOCATIONS_MAX: usize = 10;
/// The label of all other locations.
pub const OTHER: &str = "other";

/// Delay that a location must have caused to get a series: that of one stuck poll.
const WORTH_DELAY_NS: u64 = 10_000_000;
/// Its minimum share of all delay, one in this many: a smaller one would be a flat line in any
/// panel.
const WORTH_SHARE: u64 = 100;

/// The counts of a spawn location's series, since it got them; see [`Blame`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Where the tasks were spawned, or [`OTHER`].
    pub spawned_at: String,
    /// Time in polls, ns.
    pub busy_ns: u64,
    /// Polls that became incidents.
    pub stalls: u64,
    /// Delay caused, ns.
    pub delay_caused_ns: u64,
    /// Delay suffered, ns.
    pub delay_suffered_ns: u64,
}

/// The spawn locations of one runtime as series, over its lifetime.
///
/// ```
/// use volt_diagnosis::catalog::Locations;
/// use volt_telemetry::Blame;
///
/// let mut locations = Locations::default();
/// let blame = Blame { spawned_at: "main.rs:7:5".into(), stalls: 1, ..Blame::default() };
/// locations.take(&[blame]);
/// let shown: Vec<_> = locations.shown().map(|shown| (shown.spawned_at.as_str(), shown.stalls)).collect();
/// assert_eq!(shown, [("main.rs:7:5", 1), ("other", 0)]);
/// ```
#[derive(Clone, Debug)]
pub struct Locations {
    /// The locations with a series, in the order in which they got it.
    shown: Vec<Location>,
    other: Location,
    /// Every location as it was in the latest snapshot that contained it.
    seen: HashMap<String, Location>,
}

impl Default for Locations {
    fn default() -> Self {
        Self { shown: Vec::new(), other: Location::new(OTHER), seen: HashMap::new() }
    }
}

impl Locations {
    /// Adds the blame table of the next snapshot.
    pub fn take(&mut self, blame: &[Blame]) {
        self.add_locations(blame);
        for blame in blame {
            let now = Location::of(blame);
            let grown = now.since(self.seen.get(&blame.spawned_at).unwrap_or(&Location::default()));
            let location = self.shown.iter_mut().find(|location| location.spawned_at == blame.spawned_at);
            location.unwrap_or(&mut self.other).add(&grown);
            self.seen.insert(blame.spawned_at.clone(), now);
        }
    }

    /// Returns the locations with a series, in the order in which they got it, and [`OTHER`] last.
    pub fn shown(&self) -> impl Iterator<Item = &Location> {
        self.shown.iter().chain([&self.other])
    }

    fn add_locations(&mut self, blame: &[Blame]) {
        let free = LOCATIONS_MAX - self.shown.len();
        if free == 0 {
            return;
        }
        let all_ns = blame.iter().map(|blame| blame.delay_caused_ns).fold(0, u64::saturating_add);
        let is_worth_it = |blame: &&Blame| {
            let caused_ns = blame.delay_caused_ns;
            let is_much = caused_ns >= WORTH_DELAY_NS && caused_ns.saturating_mul(WORTH_SHARE) >= all_ns;
            blame.spawned_at != OTHER && (is_much || blame.stalls > 0)
        };
        let is_new = |blame: &&Blame| self.shown.iter().all(|location| location.spawned_at != blame.spawned_at);
        let mut wanted: Vec<&Blame> = blame.iter().filter(is_worth_it).filter(is_new).collect();
        order::sort_by_key(&mut wanted, |blame| std::cmp::Reverse((blame.delay_caused_ns, blame.stalls)));
        self.shown.extend(wanted.iter().take(free).map(|blame| Location::new(&blame.spawned_at)));
    }
}

impl Location {
    fn new(spawned_at: &str) -> Self {
        Self { spawned_at: spawned_at.into(), ..Self::default() }
    }

    fn of(blame: &Blame) -> Self {
        Self {
            spawned_at: String::new(),
            busy_ns: blame.busy_ns,
            stalls: blame.stalls,
            delay_caused_ns: blame.delay_caused_ns,
            delay_suffered_ns: blame.delay_suffered_ns,
        }
    }

    fn since(&self, then: &Self) -> Self {
        Self {
            spawned_at: String::new(),
            busy_ns: self.busy_ns.saturating_sub(then.busy_ns),
            stalls: self.stalls.saturating_sub(then.stalls),
            delay_caused_ns: self.delay_caused_ns.saturating_sub(then.delay_caused_ns),
            delay_suffered_ns: self.delay_suffered_ns.saturating_sub(then.delay_suffered_ns),
        }
    }

    fn add(&mut self, grown: &Self) {
        self.busy_ns = self.busy_ns.saturating_add(grown.busy_ns);
        self.stalls = self.stalls.saturating_add(grown.stalls);
        self.delay_caused_ns = self.delay_caused_ns.saturating_add(grown.delay_caused_ns);
        self.delay_suffered_ns = self.delay_suffered_ns.saturating_add(grown.delay_suffered_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn blame(spawned_at: &str, delay_caused_ns: u64) -> Blame {
        Blame { spawned_at: spawned_at.into(), delay_caused_ns, busy_ns: 2 * delay_caused_ns, ..Blame::default() }
    }

    fn caused(locations: &Locations) -> Vec<(String, u64)> {
        locations.shown().map(|shown| (shown.spawned_at.clone(), shown.delay_caused_ns)).collect()
    }

    fn expect(shown: &[(&str, u64)]) -> Vec<(String, u64)> {
        shown.iter().map(|(at, ns)| ((*at).to_string(), *ns)).collect()
    }

    #[test]
    fn the_worst_get_a_series_and_the_others_are_added_up() {
        let mut locations = Locations::default();
        let table: Vec<_> = (1..=15).map(|n| blame(&format!("{n}"), n * 20 * MS)).collect();
        locations.take(&table);
        let shown = caused(&locations);
        assert_eq!(shown.len(), LOCATIONS_MAX + 1);
        assert_eq!(shown[0], ("15".to_string(), 300 * MS));
        assert_eq!(shown[10], (OTHER.to_string(), (1 + 2 + 3 + 4 + 5) * 20 * MS));
    }

    #[test]
    fn a_series_is_kept_and_counts_only_from_its_creation_on() {
        let mut locations = Locations::default();
        locations.take(&[blame("a", 50 * MS), blame("b", MS)]);
        assert_eq!(caused(&locations), expect(&[("a", 50 * MS), (OTHER, MS)]));
        locations.take(&[blame("b", 500 * MS), blame("a", 50 * MS)]);
        let shown = expect(&[("a", 50 * MS), ("b", 499 * MS), (OTHER, MS)]);
        assert_eq!(caused(&locations), shown, "what `b` did before stays where it was counted");
        locations.take(&[blame("b", 60_000 * MS)]);
        assert_eq!(
            caused(&locations)[0],
            ("a".into(), 50 * MS),
            "too little by now, or not even reported: it keeps its series"
        );
    }

    #[test]
    fn no_series_ever_falls_and_all_add_up_to_the_table() {
        let mut locations = Locations::default();
        let mut before: HashMap<String, u64> = HashMap::new();
        let mut table: Vec<_> = (0..40).map(|n| blame(&format!("{n}"), 0)).collect();
        for round in 1..200_u64 {
            let mover = ((round * 17 + round / 9) % 40) as usize;
            table[mover].delay_caused_ns += round * MS;
            locations.take(&table);
            let shown = caused(&locations);
            assert!(shown.len() <= LOCATIONS_MAX + 1);
            for (at, ns) in &shown {
                assert!(before.get(at).is_none_or(|before| before <= ns), "{at} fell in round {round}");
            }
            let sum: u64 = shown.iter().map(|(_, ns)| ns).sum();
            assert_eq!(sum, table.iter().map(|blame| blame.delay_caused_ns).sum::<u64>());
            assert!(before.keys().all(|at| shown.iter().any(|(shown, _)| shown == at)), "a series is gone");
            before = shown.into_iter().collect();
        }
        assert_eq!(before.len(), LOCATIONS_MAX + 1);
    }

    #[test]
    fn a_minor_location_gets_no_series_unless_it_stalled() {
        let mut locations = Locations::default();
        let stalled = Blame { stalls: 1, ..blame("stalled", 0) };
        locations.take(&[blame("much", 10_000 * MS), blame("little", 20 * MS), stalled]);
        let shown: Vec<_> = locations.shown().map(|shown| shown.spawned_at.as_str()).collect();
        assert_eq!(shown, ["much", "stalled", OTHER]);
    }

    #[test]
    fn rows_that_the_runtime_merged_are_other_here_too() {
        let mut locations = Locations::default();
        locations.take(&[blame(OTHER, 900 * MS), blame("a", 100 * MS), blame("b", 1)]);
        assert_eq!(caused(&locations), expect(&[("a", 100 * MS), (OTHER, 900 * MS + 1)]));
    }
}
