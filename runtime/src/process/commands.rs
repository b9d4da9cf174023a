//! The system's own commands: clock, messages, other processes. Each is one method of [`Output`](super::Output), which says what it does.

use std::time::Duration;

use super::context::Context;
use super::dispatch::{CommandId, Handler, Request};
use super::event::MonitorId;
use super::failure::Failure;
use super::payload::Payload;
use super::pid::Pid;
use super::spawn::Spawn;
use crate::time::{MissedTickBehavior, interval_at, now, sleep};

pub(crate) const SLEEP: CommandId = CommandId::system(0);
pub(crate) const INTERVAL: CommandId = CommandId::system(1);
pub(crate) const CANCEL: CommandId = CommandId::system(2);
pub(crate) const SEND: CommandId = CommandId::system(3);
pub(crate) const CALL: CommandId = CommandId::system(4);
pub(crate) const SPAWN: CommandId = CommandId::system(5);
pub(crate) const EXEC: CommandId = CommandId::system(6);
pub(crate) const TERMINATE: CommandId = CommandId::system(7);
pub(crate) const MONITOR: CommandId = CommandId::system(8);
pub(crate) const DEMONITOR: CommandId = CommandId::system(9);
pub(crate) const LINK: CommandId = CommandId::system(10);
pub(crate) const UNLINK: CommandId = CommandId::system(11);

/// The array has a place for every number that is the system's, so that each number below `FIRST` is found, or not, in it.
pub(crate) const COUNT: usize = CommandId::FIRST as usize;

/// What `SEND` carries.
pub(crate) struct Send {
    pub to: Pid,
    pub message: Payload,
}

/// What `CALL` carries.
pub(crate) struct Call {
    pub to: Pid,
    pub message: Payload,
    pub limit: Duration,
}

/// What `TERMINATE` carries.
pub(crate) struct Terminate {
    pub pid: Pid,
    pub limit: Duration,
}

pub(crate) fn handlers() -> [Option<Box<dyn Handler>>; COUNT] {
    let mut handlers = std::array::from_fn(|_| None);
    let mut add = |command: CommandId, handler: fn(Request<'_>)| {
        let place: &mut Option<Box<dyn Handler>> = &mut handlers[command.number() as usize];
        debug_assert!(place.is_none(), "{command:?} has one handler");
        *place = Some(Box::new(handler));
    };
    add(SLEEP, |request| {
        with(request, |request, duration: Duration| {
            request.run(async move {
                sleep(duration).await;
                Ok(Payload::empty())
            })
        })
    });
    add(INTERVAL, |request| with(request, start_interval));
    add(CANCEL, |request| request.hand_over(|work, tag| work.cancel(tag)));
    add(SEND, |request| with(request, send));
    add(CALL, |request| with(request, call));
    add(SPAWN, |request| {
        with(request, |request, spawn: Spawn| {
            let pid = context(&request).spawn(spawn);
            request.complete_yield(pid.map(Payload::new).map_err(Failure::from));
        })
    });
    add(EXEC, |request| {
        with(request, |request, spawn: Spawn| {
            let result = context(&request).exec(spawn);
            request.run(async move { result.await.map_err(Failure::new) });
        })
    });
    add(TERMINATE, |request| {
        with(request, |request, terminate: Terminate| {
            let system = request.system().clone();
            request.run(async move { Ok(Payload::new(system.terminate(terminate.pid, terminate.limit).await)) });
        })
    });
    add(MONITOR, |request| {
        with(request, |request, pid: Pid| {
            let monitor = context(&request).monitor(pid);
            request.complete_yield(Ok(Payload::new(monitor)));
        })
    });
    add(DEMONITOR, |request| {
        with(request, |request, monitor: MonitorId| {
            context(&request).demonitor(monitor);
            request.complete_yield(Ok(Payload::empty()));
        })
    });
    add(LINK, |request| {
        with(request, |request, pid: Pid| {
            context(&request).link(pid);
            request.complete_yield(Ok(Payload::empty()));
        })
    });
    add(UNLINK, |request| {
        with(request, |request, pid: Pid| {
            context(&request).unlink(pid);
            request.complete_yield(Ok(Payload::empty()));
        })
    });
    handlers
}

/// Takes the payload out, or completes the yield with what is wrong with it.
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
    let Some(start) = now().checked_add(period) else {
        // Beyond what the clock can say, and so never.
        return request.run(std::future::pending());
    };
    let mut interval = interval_at(start, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    request.hand_over(|work, tag| work.repeat(tag, interval));
}

fn send(request: Request<'_>, send: Send) {
    let (context, Send { to, message }) = (context(&request), send);
    request.hand_over(|work, tag| {
        if work.is_sending() {
            return work.send(tag, async move { context.send_in_turn(to, message).await });
        }
        match context.offer_in_turn(to, message) {
            Ok(()) => work.complete(tag, Ok(Payload::empty())),
            Err(error) => match error.into_waiting() {
                Ok(message) => work.send(tag, async move { context.send_in_turn(to, message).await }),
                Err(error) => work.complete(tag, Err(Failure::from(error))),
            },
        }
    });
}

fn call(request: Request<'_>, call: Call) {
    let (context, Call { to, message, limit }) = (context(&request), call);
    request.hand_over(|work, tag| {
        work.call(tag, |turn| async move { Ok(context.call_in_turn(to, message, limit, turn).await?) });
    });
}
