//! The handlers of the system's own commands: timers, messages and other processes. Each command is
//! a method of [`Output`](crate::Output), which documents it.

use std::time::Duration;

use crate::messages::event::MonitorId;
use crate::messages::failure::Failure;
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::output::command::{self, CommandId};
use crate::steps::context::Context;
use crate::steps::dispatch::{Handler, Request};
use crate::steps::spawn::Spawn;
use volt::time::{Instant, MissedTickBehavior, interval_at, sleep};

pub(crate) fn handlers() -> [Option<Box<dyn Handler>>; command::COUNT] {
    let mut handlers = std::array::from_fn(|_| None);
    let mut add = |command: CommandId, handler: fn(Request<'_>)| {
        let place: &mut Option<Box<dyn Handler>> = &mut handlers[command.number() as usize];
        debug_assert!(place.is_none(), "{command:?} has one handler");
        *place = Some(Box::new(handler));
    };
    add(command::SLEEP, |request| {
        with(request, |request, duration: Duration| {
            request.run(async move {
                sleep(duration).await;
                Ok(Payload::empty())
            })
        })
    });
    add(command::INTERVAL, |request| with(request, start_interval));
    add(command::CANCEL, |request| request.hand_over(|work, tag| work.cancel(tag)));
    add(command::CALL, |request| with(request, call));
    add(command::SPAWN, |request| {
        with(request, |request, spawn: Spawn| {
            let pid = context(&request).spawn(spawn);
            request.complete_yield(pid.map(Payload::new).map_err(Failure::from));
        })
    });
    add(command::EXEC, |request| {
        with(request, |request, spawn: Spawn| {
            let result = context(&request).exec(spawn);
            request.run(async move { result.await.map_err(Failure::new) });
        })
    });
    add(command::TERMINATE, |request| {
        with(request, |request, terminate: command::Terminate| {
            let system = request.system().clone();
            request.run(async move { Ok(Payload::new(system.terminate(terminate.pid, terminate.limit).await)) });
        })
    });
    add(command::MONITOR, |request| {
        with(request, |request, pid: Pid| {
            let monitor = context(&request).monitor(pid);
            request.complete_yield(Ok(Payload::new(monitor)));
        })
    });
    add(command::DEMONITOR, |request| {
        with(request, |request, monitor: MonitorId| {
            context(&request).demonitor(monitor);
            request.complete_yield(Ok(Payload::empty()));
        })
    });
    add(command::LINK, |request| {
        with(request, |request, pid: Pid| {
            context(&request).link(pid);
            request.complete_yield(Ok(Payload::empty()));
        })
    });
    add(command::UNLINK, |request| {
        with(request, |request, pid: Pid| {
            context(&request).unlink(pid);
            request.complete_yield(Ok(Payload::empty()));
        })
    });
    handlers
}

/// Takes the payload out, or completes the yield with an error if it has the wrong type.
fn with<T: 'static>(mut request: Request<'_>, carry_out: impl FnOnce(Request<'_>, T)) {
    match request.take() {
        Ok(payload) => carry_out(request, payload),
        Err(failure) => request.complete_yield(Err(failure)),
    }
}

fn context(request: &Request<'_>) -> Context {
    Context::new(request.entry().clone())
}

fn start_interval(request: Request<'_>, period: Duration) {
    if period.is_zero() {
        return request.complete_yield(Err(Failure::new("an interval's period must not be zero")));
    }
    let Some(start) = Instant::now().checked_add(period) else {
        // The first tick is beyond the range of the clock: it never comes.
        return request.run(std::future::pending());
    };
    let mut interval = interval_at(start, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    request.hand_over(|work, tag| work.repeat(tag, interval));
}

fn call(request: Request<'_>, call: command::Call) {
    let (context, command::Call { to, message, limit }) = (context(&request), call);
    request.hand_over(|work, tag| {
        work.call(tag, |turn| async move { Ok(context.call_in_turn(to, message, limit, turn).await?) });
    });
}
