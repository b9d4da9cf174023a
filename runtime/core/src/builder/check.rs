//! Checks the settings. The error for a setting out of bounds names the setting and a remedy.

use std::env;
use std::ffi::OsString;
use std::thread;
use std::time::Duration;

use super::{Builder, DEFAULT_NAME};
use crate::builder::error::BuildError;
use crate::config::{self, Config, ParkSpin, Placement};
use crate::task::details::origin::MAX_NAME_BYTES;

/// The variable with the number of spare workers, for programs that do not set it.
const MAX_SPARE_WORKERS: &str = "VOLT_MAX_SPARE_WORKERS";

impl Builder {
    /// Returns the name, or why it cannot be used.
    pub(super) fn checked_name(&self) -> Result<&str, BuildError> {
        let Some(name) = &self.config.given_name else { return Ok(DEFAULT_NAME) };
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            let remedy = format_args!("give 1 to {} bytes", MAX_NAME_BYTES);
            return Err(BuildError::invalid("name", format_args!("{} bytes long", name.len()), remedy));
        }
        if name.trim().is_empty() {
            return Err(BuildError::invalid("name", format_args!("{name:?}"), "give one that is not blank"));
        }
        if name.chars().any(char::is_control) {
            return Err(BuildError::invalid("name", format_args!("{name:?}"), "leave out control characters"));
        }
        Ok(name)
    }

    /// Returns the settings with their derived defaults, or the first one that is out of bounds.
    pub(super) fn checked_config(&self) -> Result<Config, BuildError> {
        let config = &self.config;
        let in_range = |setting: &str, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(BuildError::invalid(setting, value, format_args!("give {min} to {max}")))
        };
        let not_zero = |setting: &str, is_zero: bool| {
            if is_zero { Err(BuildError::invalid(setting, 0, "give a duration longer than 0")) } else { Ok(()) }
        };
        let power_of_two = |setting: &str, value: usize| {
            if value.is_power_of_two() && (2..=32_768).contains(&value) {
                return Ok(());
            }
            Err(BuildError::invalid(setting, value, "give a power of two from 2 to 32768"))
        };
        let ordered = |setting: &str, min: u64, max: u64| {
            if 1 <= min && min <= max {
                return Ok(());
            }
            Err(BuildError::invalid(setting, format_args!("{min} to {max}"), "give 1 <= min <= max"))
        };
        if config.workers > config::MAX_WORKERS {
            let remedy = format_args!("give 1 to {}, or 0 for one per processor", config::MAX_WORKERS);
            return Err(BuildError::invalid("worker_threads", config.workers, remedy));
        }
        in_range("budget_per_tick", config.budget_per_tick.into(), 1, config::MAX_BUDGET_PER_TICK.into())?;
        in_range("coop_budget", config.coop_budget.into(), 1, u32::MAX.into())?;
        if self.has_lifo_polls && config.max_lifo_polls_per_tick >= config.budget_per_tick {
            let remedy = format_args!("give less than budget_per_tick, {}", config.budget_per_tick);
            return Err(BuildError::invalid("max_lifo_polls_per_tick", config.max_lifo_polls_per_tick, remedy));
        }
        power_of_two("local_queue_capacity", config.local_queue_capacity)?;
        power_of_two("global_queue_batch_size", config.global_queue_batch_size)?;
        let (min, max) = (config.min_global_queue_batch as u64, config.max_global_queue_batch as u64);
        ordered("global_queue_batch_bounds", min, max)?;
        in_range("global_queue_capacity", config.global_queue_capacity as u64, 1, u64::MAX)?;
        not_zero("target_global_queue_latency", config.target_global_queue_latency_ns == 0)?;
        if config.ewma_alpha_per_mille == 0 {
            return Err(BuildError::invalid("ewma_alpha", "out of bounds", "give 0.0005 to 1"));
        }
        not_zero("default_avg_task", config.default_avg_task_ns == 0)?;
        let (min, max) = (config.min_global_queue_interval.into(), config.max_global_queue_interval.into());
        ordered("global_queue_interval_bounds", min, max)?;
        not_zero("park_timeout", config.park_timeout == Some(Duration::ZERO))?;
        if config.park_timeout.is_some_and(|timeout| timeout > config.max_park_timeout) {
            let remedy = format_args!("give at least park_timeout, {:?}", config.park_timeout.unwrap_or_default());
            return Err(BuildError::invalid("max_park_timeout", format_args!("{:?}", config.max_park_timeout), remedy));
        }
        if let ParkSpin::Adaptive { at_most } = config.park_spin
            && (at_most.is_zero() || at_most > config::MAX_PARK_SPIN)
        {
            let remedy = format_args!("give more than 0 and at most {:?}, or ParkSpin::Off", config::MAX_PARK_SPIN);
            return Err(BuildError::invalid("park_spin", format_args!("{at_most:?}"), remedy));
        }
        not_zero("incident_after", config.incident_after_ns == Some(0))?;
        not_zero("sentinel_interval", config.sentinel_interval == Some(Duration::ZERO))?;
        in_range("max_io_completions", config.max_io_completions as u64, 1, config::MAX_IO_COMPLETIONS_BOUND as u64)?;
        in_range("max_blocking_threads", config.max_blocking_threads as u64, 1, u32::MAX.into())?;
        not_zero("thread_keep_alive", config.blocking_keep_alive.is_zero())?;
        let records = config.flight_records;
        if !records.is_power_of_two() || !(1024..=config::MAX_FLIGHT_RECORDS).contains(&records) {
            let remedy = format_args!("give a power of two from 1024 to {}", config::MAX_FLIGHT_RECORDS);
            return Err(BuildError::invalid("flight_records", records, remedy));
        }
        if config.thread_name.contains('\0') {
            return Err(BuildError::invalid("thread_name", format_args!("{:?}", config.thread_name), "leave out NUL"));
        }
        if let Some(seed) = config.seed {
            check_seeded(config, seed)?;
        }
        let mut config = config.clone();
        if config.is_current_thread {
            config.workers = 1;
            config.max_spare_workers = 0;
            config.enable_stealing = false;
            config.max_lifo_polls_per_tick = 0;
            if config.seed.is_some() {
                set_seeded(&mut config);
            }
            return Ok(config);
        }
        // The default must not refuse a small budget.
        config.max_lifo_polls_per_tick = config.max_lifo_polls_per_tick.min(config.budget_per_tick - 1);
        if config.workers == 0 {
            config.workers = thread::available_parallelism().map_or(1, usize::from).min(config::MAX_WORKERS);
        }
        let spares = config.workers.clamp(config::MIN_SPARE_WORKERS, config::MAX_SPARE_WORKERS);
        let wanted = match self.spare_workers {
            None => wanted_spares(env::var_os(MAX_SPARE_WORKERS))?,
            wanted => wanted,
        };
        config.max_spare_workers = wanted.unwrap_or(spares);
        in_range("max_spare_workers", config.max_spare_workers as u64, 0, config::MAX_WORKERS as u64)?;
        Ok(config)
    }
}

/// Returns the value of the variable [`MAX_SPARE_WORKERS`], if it is set and not empty.
pub(super) fn wanted_spares(value: Option<OsString>) -> Result<Option<usize>, BuildError> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let spares =
        value.to_str().and_then(|text| text.trim().parse().ok()).filter(|&spares| spares <= config::MAX_WORKERS);
    match spares {
        Some(spares) => Ok(Some(spares)),
        None => {
            let remedy = format_args!("give 0 to {}, or unset it", config::MAX_WORKERS);
            Err(BuildError::invalid(MAX_SPARE_WORKERS, format_args!("{value:?}"), remedy))
        }
    }
}

/// Checks the settings of a runtime with a seed.
fn check_seeded(config: &Config, seed: u64) -> Result<(), BuildError> {
    let invalid = |what: &str, remedy: &str| Err(BuildError::invalid("seed", format_args!("{seed} {what}"), remedy));
    if !config.is_current_thread {
        return invalid("in a multi-thread runtime", "use Builder::new_current_thread()");
    }
    if config.tokio_compat {
        return invalid("with tokio_compat", "leave one of them out: no seed controls the thread of the Tokio runtime");
    }
    if config.poll_limit == 0 {
        return Err(BuildError::invalid("poll_limit", 0, "give at least 1"));
    }
    Ok(())
}

/// Leaves out the services whose threads would affect the order of polls. A dump, which a console
/// requests through the control socket, polls each waiting task. Tasks are placed in the global
/// queue, because the only worker draws from that one and its ring.
fn set_seeded(config: &mut Config) {
    config.placement = Placement::Global;
    config.sentinel_interval = None;
    config.incident_after_ns = None;
    config.incident_stacks = false;
    config.control_socket = false;
    config.local_queue_capacity = config.local_queue_capacity.max(config::SEEDED_QUEUE_CAPACITY);
}
