//! The chain of a dump: from stacks to the calls that a reader needs, as a tree.
//!
//! A stack of a task has some 30 frames for three functions of the application: those of the
//! executor, of `Pin`, `Box` and `Future`, and of the operation that is pending. The chain contains
//! the application's frames, and the outermost frame of the library below the last of them: what
//! the task awaits. A task of a library, without a frame of the application, has the frames of
//! packages from a registry.
//!
//! All functions are pure.

use volt_telemetry::Frame;
use volt_telemetry::dump::{Link, MAX_LINKS};
use volt_telemetry::text::package_path;

/// Parts of the paths of Rust's own sources.
const STD_FOLDERS: [&str; 3] = ["/rustc/", "/lib/rustlib/src/rust/library/", "/rust/deps/"];
/// The folder of the parts of Tokio that `cargo volt` puts beside Volt's crates.
const TOKIO_FOLDER: &str = "/parts/src/";
/// The source of the functions around the operations of `volt::sync`.
const WRAPPERS: &str = "/src/sync/spend.rs";
/// Parts of the paths of packages' functions that only pass a poll on to the operation below: the
/// traits of streams and of readers and their methods, `select`, and the crates on event-listener.
const ADAPTERS: [&str; 11] = [
    "/event-listener-strategy-",
    "/futures-core-",
    "/futures-io-",
    "/src/stream/stream/next.rs",
    "/src/stream/stream/mod.rs",
    "/src/stream_ext/next.rs",
    "/src/io/util/",
    "/src/io/async_read.rs",
    "/src/io/async_write.rs",
    "/src/future/select.rs",
    "/src/future/future/mod.rs",
];
/// This file, as passed to the compiler, and its place in the folder of Volt's crates.
const OWN_FILE: (&str, &str) = (file!(), "core/src/scheduler/dump/chain.rs");
/// Where packages have their macros.
const MACROS: &str = "/src/macros/";
/// The functions that poll the future of a task and that of a `block_on`, and their files. Their
/// frames, and those above them, are not the task's.
const POLL: (&str, [&str; 2]) = ("poll_future", ["task/cell/mod.rs", "scheduler/readers/main_futures.rs"]);
/// The beginning of the names of the functions that copy the stack. Their frames, and those below
/// them, are not the task's.
const CLONE: &str = "volt_core::task::waker::clone_traced";

/// Returns the chain of stacks, innermost frame first, each with the number of times that it
/// occurred. `is_whole`: with all frames.
pub(super) fn of(stacks: &[(Vec<Frame>, u32)], is_whole: bool) -> Vec<Link> {
    let has_user = |frames: &[Frame]| frames.iter().any(|frame| frame.is_user_code);
    let mut stacks: Vec<_> = stacks.iter().map(|(frames, times)| (of_task(frames), times)).collect();
    // The application's branches come first, then those that are first in the code: the order in
    // which they were polled may differ from dump to dump.
    stacks.sort_by(|(own, _), (other, _)| {
        let by_code = || own.iter().rev().map(place).cmp(other.iter().rev().map(place));
        has_user(other).cmp(&has_user(own)).then_with(by_code)
    });
    let is_of_user = stacks.first().is_some_and(|(own, _)| has_user(own));
    let mut root = Vec::new();
    for (own, times) in stacks {
        let mut kept: Vec<&Frame> = if is_whole { own.iter().rev().collect() } else { shown(own) };
        if is_of_user && !is_whole && !has_user(own) && kept.len() > 2 {
            // A wait of a library beside one of the application: only its two ends are shown.
            kept.drain(1..kept.len() - 1);
        }
        insert(&mut root, &kept, *times);
    }
    let mut links = Vec::new();
    flatten(&root, 0, &mut links);
    links
}

/// Returns the place of a frame in the code, for sorting.
fn place(frame: &Frame) -> (Option<&str>, Option<u32>, Option<&str>) {
    (frame.file.as_deref(), frame.line, frame.function.as_deref())
}

/// Returns the frames without those that copy the stack and those that poll the task.
fn of_task(frames: &[Frame]) -> &[Frame] {
    let is_clone = |frame: &Frame| frame.function.as_deref().is_some_and(|name| name.starts_with(CLONE));
    let frames = match frames.iter().rposition(is_clone) {
        Some(clone) => &frames[clone + 1..],
        None => frames,
    };
    // `Waker::clone`, which is inlined into the future or not.
    let own = frames.iter().position(|frame| !is_std(frame)).unwrap_or(0);
    let frames = &frames[own..];
    let is_poll = |frame: &Frame| {
        frame.function.as_deref().is_some_and(|name| name.ends_with(POLL.0))
            && frame.file.as_deref().is_some_and(|file| POLL.1.iter().any(|end| file.ends_with(end)))
    };
    &frames[..frames.iter().rposition(is_poll).unwrap_or(frames.len())]
}

/// Selects the frames to show. Returns them outermost first.
fn shown(frames: &[Frame]) -> Vec<&Frame> {
    let Some(innermost) = frames.iter().position(|frame| frame.is_user_code) else {
        // A task of a library: its own packages' frames, and what it awaits.
        let innermost = frames.iter().find(|frame| !is_std(frame));
        let packages = frames.iter().filter(|frame| is_of_package(frame));
        let mut shown: Vec<&Frame> = packages.collect();
        if let Some(innermost) = innermost
            && !shown.first().is_some_and(|first| std::ptr::eq(*first, innermost))
        {
            shown.insert(0, innermost);
        }
        shown.reverse();
        return shown;
    };
    let mut shown: Vec<&Frame> = frames.iter().filter(|frame| frame.is_user_code).collect();
    shown.reverse();
    let inner = &frames[..innermost];
    let user = frames[innermost].function.as_ref();
    let outside = || inner.iter().rev().filter(|frame| !is_std(frame));
    // Not the code of macros, which belongs to the application's function.
    let is_macro =
        |frame: &Frame| is_in(frame, &[MACROS]) || frame.function.is_some() && frame.function.as_ref() == user;
    let is_wrapper = |frame: &Frame| match is_of_package(frame) {
        true => is_in(frame, &ADAPTERS),
        false => is_in(frame, &[WRAPPERS]),
    };
    let is_informative = |frame: &&Frame| name_of(frame).is_some() && !is_macro(frame) && !is_wrapper(frame);
    let informative = outside().find(is_informative);
    shown.extend(informative.or_else(|| outside().next()).or(inner.last()));
    shown
}

/// Returns whether this is code of a package that cargo downloaded.
fn is_of_package(frame: &Frame) -> bool {
    frame.file.as_deref().is_some_and(|file| package_path(file).is_some())
}

fn is_in(frame: &Frame, folders: &[&str]) -> bool {
    frame.file.as_ref().is_some_and(|file| folders.iter().any(|folder| file.contains(folder)))
}

fn is_std(frame: &Frame) -> bool {
    is_in(frame, &STD_FOLDERS)
}

/// A call with the calls that it made.
struct Node {
    link: Link,
    below: Vec<Node>,
}

/// Adds a stack, outermost frame first, to the tree.
fn insert(level: &mut Vec<Node>, frames: &[&Frame], times: u32) {
    let Some((first, rest)) = frames.split_first() else { return };
    let link = Link {
        depth: 0,
        function: name_of(first),
        file: first.file.as_deref().map(|file| match (volt_path(first), tokio_path(first)) {
            (Some(path), _) => format!("volt/{path}"),
            (None, Some(path)) => format!("tokio/src/{path}"),
            (None, None) => package_path(file).unwrap_or(file).to_owned(),
        }),
        line: first.line,
        is_user_code: first.is_user_code,
        times: 0,
        code: None,
    };
    let same =
        |node: &Node| (&node.link.function, &node.link.file, node.link.line) == (&link.function, &link.file, link.line);
    let at = level.iter().position(same).unwrap_or_else(|| {
        level.push(Node { link, below: Vec::new() });
        level.len() - 1
    });
    let node = &mut level[at];
    if rest.is_empty() {
        node.link.times += times;
    }
    insert(&mut node.below, rest, times);
}

/// Returns the name to show: that of the function or, if only the last part of it is known, that of
/// the package's module.
fn name_of(frame: &Frame) -> Option<String> {
    let name = frame.function.as_deref().filter(|name| !is_bare(name));
    if let Some(name) = name.filter(|name| name.contains("::")) {
        return Some(plain(name));
    }
    let module = match volt_path(frame) {
        Some(path) => volt_module(path),
        None => frame.file.as_deref().filter(|_| !frame.is_user_code).and_then(module_of),
    };
    match (module, name) {
        // Each future has a `poll`, so the name is of no use.
        (Some(module), None | Some("poll")) => Some(module),
        (Some(module), Some(name)) => Some(format!("{module}::{name}")),
        (None, name) => name.map(str::to_owned),
    }
}

/// Returns the path of one of Volt's sources in the folder of its crates: `src/sync/mutex.rs`.
fn volt_path(frame: &Frame) -> Option<&str> {
    let file = frame.file.as_deref().filter(|_| !frame.is_user_code)?;
    // The path ends with a slash. It is relative if Volt is a part of the program's workspace.
    let folder = OWN_FILE.0.strip_suffix(OWN_FILE.1)?;
    let mut ends = file.match_indices(folder).map(|(at, _)| (at, at + folder.len()));
    let is_whole_name = |at: usize| at == 0 || folder.starts_with('/') || file[..at].ends_with('/');
    let is_source = |path: &str| path.split('/').take(2).any(|part| part == "src");
    ends.find(|&(at, end)| is_whole_name(at) && is_source(&file[end..])).map(|(_, end)| &file[end..])
}

/// Returns the path of a part of Tokio that `cargo volt` uses: `sync/notify.rs`.
fn tokio_path(frame: &Frame) -> Option<&str> {
    let file = frame.file.as_deref().filter(|_| !frame.is_user_code)?;
    file.split_once(TOKIO_FOLDER).map(|(_, path)| path)
}

/// Returns the module of one of Volt's sources: `volt::sync::mutex` for `src/sync/mutex.rs`,
/// `volt_core::sleep` for `core/src/sleep.rs`.
fn volt_module(path: &str) -> Option<String> {
    let (krate, path) = match path.strip_prefix("src/") {
        Some(path) => ("volt".to_owned(), path),
        None => {
            let (krate, path) = path.split_once("/src/")?;
            (format!("volt_{krate}"), path)
        }
    };
    Some(joined(&krate, path.strip_suffix(".rs")?))
}

/// Returns the name of a module from its crate and its path.
fn joined(krate: &str, path: &str) -> String {
    let modules = path.split('/').filter(|module| *module != "lib" && *module != "mod");
    std::iter::once(krate).chain(modules).collect::<Vec<_>>().join("::")
}

/// Shortens `<shop::Bell as core::future::future::Future>::poll` to `shop::Bell`, and
/// `<shop::Till as tokio::io::AsyncRead>::poll_read` to `shop::Till::poll_read`.
fn plain(name: &str) -> String {
    let parts = || {
        let (own, rest) = name.strip_prefix('<')?.split_once(" as ")?;
        let (interface, method) = rest.split_once(">::")?;
        let is_path = |text: &str| !text.contains(|c: char| "<>&()[]* ".contains(c));
        (is_path(own) && is_path(interface)).then_some((own, interface, method))
    };
    match parts() {
        Some((own, "core::future::future::Future", "poll")) => own.to_owned(),
        Some((own, _, method)) => format!("{own}::{method}"),
        None => name.to_owned(),
    }
}

/// Returns the module of a package's source: `tokio::sync::mutex` for
/// `…/registry/src/index/tokio-1.48.0/src/sync/mutex.rs`.
fn module_of(file: &str) -> Option<String> {
    if let Some((_, path)) = file.split_once(TOKIO_FOLDER) {
        return Some(joined("tokio", path.strip_suffix(".rs")?));
    }
    let (package, path) = package_path(file)?.split_once("/src/")?;
    // The version begins at the last hyphen before a digit.
    let version = package
        .rmatch_indices('-')
        .map(|(at, _)| at)
        .find(|at| package[at + 1..].starts_with(|c: char| c.is_ascii_digit()));
    let krate = package[..version.unwrap_or(package.len())].replace('-', "_");
    Some(joined(&krate, path.strip_suffix(".rs")?))
}

/// Returns whether it is the name of no function: see `names` of `volt-stacks`. Without full debug
/// information, inlined async functions have no names.
fn is_bare(name: &str) -> bool {
    ["async ", "closure", "coroutine", "impl"].iter().any(|kind| name.starts_with(kind)) && !name.contains("::")
        || name.contains(" inlined into ")
}

/// Appends the tree in preorder.
fn flatten(level: &[Node], depth: u32, links: &mut Vec<Link>) {
    for node in level {
        if links.len() == MAX_LINKS {
            return;
        }
        links.push(Link { depth, ..node.link.clone() });
        flatten(&node.below, depth + 1, links);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str, is_user_code: bool) -> Frame {
        let (function, file) = (Some(function.to_owned()), Some(file.to_owned()));
        Frame { function, file, line: Some(1), is_user_code, ..Frame::default() }
    }

    fn names(links: &[Link]) -> Vec<String> {
        let name =
            |link: &Link| format!("{}{}", " ".repeat(link.depth as usize), link.function.as_deref().unwrap_or("?"));
        links.iter().map(name).collect()
    }

    /// A stack as it is captured, innermost first, with these frames of the task.
    fn stack(own: &[Frame]) -> (Vec<Frame>, u32) {
        let mut frames = vec![
            frame("volt_stacks::reader::tape::Tape::note", "/volt/stacks/src/reader/tape.rs", false),
            frame(CLONE, "/volt/core/src/task/waker.rs", false),
            frame("<core::task::wake::Waker as Clone>::clone", "/rustc/1/library/core/src/task/wake.rs", false),
        ];
        frames.extend(own.iter().cloned());
        frames.push(frame("volt_core::task::cell::Cell::poll_future", "/volt/core/src/task/cell/mod.rs", false));
        frames.push(frame("core::ops::function::FnOnce::call_once", "/rustc/1/library/core/src/ops.rs", false));
        frames.push(frame("volt_core::task::cell::run", "/volt/core/src/task/cell/mod.rs", false));
        frames.push(frame("volt_stacks::reader::tape::Tape::record", "/volt/stacks/src/reader/tape.rs", false));
        (frames, 1)
    }

    #[test]
    fn the_chain_ends_at_what_the_application_awaits() {
        let own = [
            frame("tokio::sync::Semaphore::poll", "/x/registry/src/i/tokio-1.0/src/a.rs", false),
            frame("tokio::sync::Mutex::lock", "/x/registry/src/i/tokio-1.0/src/b.rs", false),
            frame("core::pin::Pin::poll", "/rustc/1/library/core/src/pin.rs", false),
            frame("shop::order", "src/order.rs", true),
            frame("core::future::poll", "/rustc/1/library/core/src/future.rs", false),
            frame("shop::serve", "src/serve.rs", true),
        ];
        let links = of(&[stack(&own)], false);
        assert_eq!(names(&links), ["shop::serve", " shop::order", "  tokio::sync::Mutex::lock"]);
        assert_eq!(links[2].file.as_deref(), Some("tokio-1.0/src/b.rs"));
        assert_eq!(of(&[stack(&own)], true).len(), own.len());
    }

    #[test]
    fn a_task_of_a_library_shows_its_packages() {
        let own = [
            frame("volt::net::TcpStream::poll_read", "/volt/src/net/stream.rs", false),
            frame("hyper::read_head", "/x/registry/src/i/hyper-1.0/src/a.rs", false),
            frame("hyper::serve", "/x/registry/src/i/hyper-1.0/src/b.rs", false),
        ];
        let links = of(&[stack(&own)], false);
        assert_eq!(names(&links), ["hyper::serve", " hyper::read_head", "  volt::net::TcpStream::poll_read"]);
    }

    #[test]
    fn several_awaits_of_a_task_are_branches() {
        let leaf = |name: &str| frame(name, "/x/registry/src/i/tokio-1.0/src/a.rs", false);
        let serve = frame("shop::serve", "src/serve.rs", true);
        let (left, right) = (stack(&[leaf("recv"), serve.clone()]), stack(&[leaf("sleep"), serve]));
        let (left, right) = (left, (right.0, 20));
        let links = of(&[left.clone(), right.clone()], false);
        assert_eq!(names(&links), ["shop::serve", " tokio::a::recv", " tokio::a::sleep"]);
        assert_eq!((links[1].times, links[2].times), (1, 20));
        assert_eq!(of(&[right, left], false), links, "whatever the order of their polls");
    }

    #[test]
    fn a_future_of_the_application_that_waits_itself_is_the_end() {
        let links = of(&[stack(&[frame("shop::Bell::poll", "src/bell.rs", true)])], false);
        assert_eq!(names(&links), ["shop::Bell::poll"]);
    }

    #[test]
    fn a_branch_of_a_macro_ends_at_its_operation() {
        let own = [
            frame("volt::sync::oneshot::Receiver::poll", "/volt/src/sync/oneshot.rs", false),
            frame("volt::sync::spend::spend", "/volt/src/sync/spend.rs", false),
            frame("shop::serve", "/x/registry/src/i/tokio-1.0/src/macros/select.rs", false),
            frame("shop::serve", "src/serve.rs", true),
        ];
        assert_eq!(names(&of(&[stack(&own)], false)), ["shop::serve", " volt::sync::oneshot::Receiver::poll"]);
    }

    #[test]
    fn an_unnamed_operation_has_the_name_of_its_module() {
        let own = [
            frame("async fn inlined into shop::main", "/x/registry/src/i/tokio-1.54.1/src/sync/mutex.rs", false),
            frame("async block inlined into shop::main", "/volt/src/sync/spend.rs", false),
            frame("shop::serve", "src/serve.rs", true),
        ];
        assert_eq!(names(&of(&[stack(&own)], false)), ["shop::serve", " tokio::sync::mutex"]);
        let leaf = frame("<tokio::Sleep as core::future::future::Future>::poll", "/volt/a.rs", false);
        assert_eq!(names(&of(&[stack(&[leaf, own[2].clone()])], false)), ["shop::serve", " tokio::Sleep"]);
        assert_eq!(module_of("/x/registry/src/i/async-lock-3.4.0/src/lib.rs").as_deref(), Some("async_lock"));
    }

    #[test]
    fn a_bare_name_is_completed_by_its_module() {
        let user = frame("shop::serve", "src/serve.rs", true);
        let end = |function: &str, file: &str| {
            let links = of(&[stack(&[frame(function, file, false), user.clone()])], false);
            (links[1].function.clone().unwrap(), links[1].file.clone().unwrap())
        };
        let file = "/x/registry/src/i/futures-channel-0.3.34/src/oneshot.rs";
        assert_eq!(end("poll", file).0, "futures_channel::oneshot");
        assert_eq!(end("recv", file).0, "futures_channel::oneshot::recv");
        let folder = OWN_FILE.0.strip_suffix(OWN_FILE.1).unwrap();
        let root = if folder.starts_with('/') { "" } else { "/home/builder/" };
        let volt = |path: &str| end("poll", &format!("{root}{folder}{path}"));
        assert_eq!(volt("core/src/sleep.rs"), ("volt_core::sleep".into(), "volt/core/src/sleep.rs".into()));
        assert_eq!(volt("src/net/mod.rs"), ("volt::net".into(), "volt/src/net/mod.rs".into()));
        let tokio = end("poll", "/t/sources/1.5/parts/src/sync/notify.rs");
        assert_eq!(tokio, ("tokio::sync::notify".into(), "tokio/src/sync/notify.rs".into()));
        assert_eq!(end("poll", "/other/net.rs"), ("poll".into(), "/other/net.rs".into()));
    }

    #[test]
    fn the_waits_of_a_library_come_after_those_of_the_application() {
        let package = |name: &str| frame(name, "/x/registry/src/i/hyper-1.0/src/a.rs", false);
        let library = stack(&[package("hyper::read"), package("hyper::turn"), package("hyper::serve")]);
        let own = stack(&[package("hyper::handler::lock"), frame("shop::serve", "src/serve.rs", true)]);
        assert_eq!(names(&of(std::slice::from_ref(&library), false)).len(), 3);
        let expected = ["shop::serve", " hyper::handler::lock", "hyper::serve", " hyper::read"];
        assert_eq!(names(&of(&[library, own], false)), expected);
    }

    #[test]
    fn a_method_of_a_trait_is_named_by_its_type() {
        assert_eq!(
            plain("<volt::net::TcpStream as tokio::io::AsyncRead>::poll_read"),
            "volt::net::TcpStream::poll_read"
        );
        assert_eq!(plain("<shop::Bell as core::future::future::Future>::poll"), "shop::Bell");
        assert_eq!(
            plain("<&mut F as core::future::future::Future>::poll"),
            "<&mut F as core::future::future::Future>::poll"
        );
    }

    #[test]
    fn a_future_that_only_passes_polls_on_is_not_the_end() {
        let user = frame("shop::serve", "src/serve.rs", true);
        let package = |file: &str| frame("poll", &format!("/x/registry/src/i/{file}"), false);
        let [lock, passes] = ["async-lock-3.4.0/src/mutex.rs", "event-listener-strategy-0.5.4/src/lib.rs"].map(package);
        assert_eq!(names(&of(&[stack(&[lock, passes.clone(), user.clone()])], false))[1], " async_lock::mutex");
        // Nothing below it.
        assert_eq!(names(&of(&[stack(&[passes, user])], false))[1], " event_listener_strategy");
    }

    #[test]
    fn a_function_without_a_name_keeps_its_line() {
        let own = [frame("async fn inlined into shop::main", "src/main.rs", true)];
        let links = of(&[stack(&own)], false);
        assert_eq!((links[0].function.as_deref(), links[0].line), (None, Some(1)));
    }
}
