//! Operations per batch, for the workloads whose instructions the benchmark `observe` counts from
//! outside and divides by this number.

/// Tasks that wake themselves, and how often each does.
pub(crate) const CROWD: usize = 100;
pub(crate) const CROWD_TIMES: usize = 1_000;
/// For one task alone.
pub(crate) const ALONE_TIMES: usize = 100_000;
/// Hops of a baton, there and back.
pub(crate) const BATON_HOPS: usize = 10_000;
/// Pairs of tasks that exchange two values.
pub(crate) const PINGS: usize = 1_000;
/// Tasks that are spawned and awaited one at a time.
pub(crate) const ONE_BY_ONE: usize = 2_000;
/// Tasks that are spawned before the first is awaited.
pub(crate) const MANY: usize = 10_000;
