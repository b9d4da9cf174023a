//! Makes names of functions readable, and determines whether they are application code. All
//! functions are pure.
//!
//! [`symbols`](super::symbols) uses this module. There are two kinds of names. Whole names include
//! the path: `demo::fetch::{{closure}}`. They come from symbols, or from debug information with
//! `debug = "limited"` or more. Bare names are only the last part: `{async_fn#0}`, `load<u64>`.
//! Inlined functions have bare names with `debug = "line-tables-only"`.
//!
//! To the compiler, the body of an `async fn` or async block is a closure in the enclosing
//! function. Its readable name is that of the enclosing function. So is that of a closure: the line
//! distinguishes them.

/// Parts of the paths of sources that are not application code. They are Rust's own sources (as
/// released, as installed, and their dependencies), and packages from a registry or from git,
/// wherever cargo stores them.
const FOREIGN_FOLDERS: [&str; 5] =
    ["/rustc/", "/lib/rustlib/src/rust/library/", "/rust/deps/", "/registry/src/", "/git/checkouts/"];
/// Crates that are not application code, for functions whose file is not known.
const FOREIGN_CRATES: [&str; 14] = [
    "std",
    "core",
    "alloc",
    "compiler_builtins",
    "panic_unwind",
    "__rustc",
    "volt",
    "volt_core",
    "volt_diagnosis",
    "volt_process",
    "volt_runtime",
    "volt_shim",
    "volt_stacks",
    "volt_telemetry",
];

/// Demangles a symbol. Returns `raw` itself if it is not mangled.
pub(super) fn demangled(raw: &str) -> String {
    rustc_demangle::try_demangle(raw).map_or_else(|_| raw.to_owned(), |name| format!("{name:#}"))
}

/// Returns whether the name is whole, that is, includes a path.
pub(super) fn is_whole(demangled: &str) -> bool {
    without_generics(demangled).contains("::")
}

/// Makes `demangled` readable. `holder` is the readable name of the function that a bare name was
/// inlined into.
pub(super) fn readable(demangled: &str, holder: Option<&str>) -> String {
    let name = without_generics(demangled);
    if let Some(kind) = name.strip_prefix('{').filter(|_| !name.contains("::")).and_then(|name| name.split('#').next())
    {
        let kind = kind.trim_end_matches('}').replace('_', " ");
        return match holder {
            Some(holder) => format!("{kind} inlined into {holder}"),
            None => kind,
        };
    }
    // Parts that the compiler generated: `{{closure}}`, `{closure#0}`, `{{vtable.shim}}`,
    // `{shim:vtable#0}`.
    let mut parts = String::with_capacity(name.len());
    let mut rest = name.as_str();
    while let Some(at) = rest.find('{') {
        let (before, made) = rest.split_at(at);
        parts.push_str(before.strip_suffix("::").unwrap_or(before));
        let end = made.find('}').map_or(made.len(), |end| end + 1);
        rest = made[end..].trim_start_matches('}');
    }
    parts + rest
}

/// Removes `<…>` after a name or after its `::`. The brackets of `<Type as Trait>::method` are
/// kept, but the generics inside are removed.
fn without_generics(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    // The depth inside generics that are removed, and the number of open brackets that are kept.
    let (mut omitted, mut kept) = (0_usize, 0_usize);
    let mut before = ' ';
    for character in name.chars() {
        match character {
            '<' if omitted > 0 => omitted += 1,
            '<' if before.is_alphanumeric() || matches!(before, '_' | ':' | '}') => {
                omitted = 1;
                if before == ':' {
                    short.truncate(short.trim_end_matches("::").len());
                }
            }
            // An arrow, as in `fn() -> T`.
            '>' if before == '-' => {
                if omitted == 0 {
                    short.push('>');
                }
            }
            '>' if omitted > 0 => omitted -= 1,
            _ => {
                match character {
                    '<' => kept += 1,
                    '>' => kept = kept.saturating_sub(1),
                    _ => {}
                }
                if omitted == 0 {
                    short.push(character);
                }
            }
        }
        before = character;
    }
    // Unbalanced brackets are not generics, but a C++ operator.
    if omitted == 0 && kept == 0 { short } else { name.to_owned() }
}

/// Returns whether a function is application code. It is in the program's own file (not in a
/// library), is named `demangled`, and comes from `file`. `volt` is the folder of Volt's crates, as
/// in `file`.
pub(super) fn is_user_code(demangled: Option<&str>, file: Option<&str>, volt: Option<&str>) -> bool {
    let Some(name) = demangled else { return false };
    let is_foreign_file = file.is_some_and(|file| {
        FOREIGN_FOLDERS.iter().any(|folder| file.contains(folder))
            || volt.is_some_and(|volt| file.strip_prefix(volt).is_some_and(is_source) || is_facade(file, volt))
    });
    let is_foreign = match crate_of(name) {
        Some(krate) => FOREIGN_CRATES.contains(&krate),
        // Either inlined Rust, or C, which is application code if its file is known.
        None => file.is_none(),
    };
    !is_foreign_file && !is_foreign
}

/// Returns whether `file`, relative to the folder of Volt's crates, is a source of one of them:
/// `src/task/cell.rs`, `stacks/src/fork.rs`. Their tests and benches are applications.
fn is_source(file: &str) -> bool {
    file.split('/').take(2).any(|folder| folder == "src")
}

/// Returns whether `file` is a source of the replacement for the crate `tokio` that `cargo volt`
/// puts beside Volt's crates, or of the parts of Tokio that it contains.
fn is_facade(file: &str, volt: &str) -> bool {
    let beside = volt.strip_suffix("/volt/runtime/").and_then(|parent| file.strip_prefix(parent));
    beside.is_some_and(|file| ["/tokio/src/", "/parts/src/"].iter().any(|folder| file.starts_with(folder)))
}

/// Returns the crate of a whole name. For `<Type as Trait>::method` this is the type's crate or, if
/// the type has none, as in `&T`, the trait's.
fn crate_of(demangled: &str) -> Option<&str> {
    let mut rest = demangled;
    // The trait may itself be written as a type, any number of times: a short mangled name may be
    // one of a megabyte. A recursion would overflow the stack.
    loop {
        rest = without_qualifiers(rest);
        let end = rest.find(|character: char| !character.is_alphanumeric() && character != '_').unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        if behind.starts_with("::") && !name.is_empty() {
            return Some(name);
        }
        (_, rest) = behind.split_once(" as ")?;
    }
}

/// Removes what precedes the path of a type: brackets, references, `mut`, `dyn`.
fn without_qualifiers(mut rest: &str) -> &str {
    loop {
        let trimmed = rest.trim_start_matches(['<', '&', '*', '[', '(', ' ']);
        let trimmed =
            ["mut ", "const ", "dyn ", "impl "].iter().find_map(|word| trimmed.strip_prefix(word)).unwrap_or(trimmed);
        if trimmed.len() == rest.len() {
            return rest;
        }
        rest = trimmed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_as_the_function_that_holds_it() {
        for (name, read) in [
            ("demo::fetch", "demo::fetch"),
            ("demo::fetch::{{closure}}", "demo::fetch"),
            ("demo::fetch::{{closure}}::{{closure}}", "demo::fetch"),
            ("demo::fetch::{closure#0}::{closure#1}", "demo::fetch"),
            ("demo::fetch::{{closure}}::helper", "demo::fetch::helper"),
            ("core::ops::function::FnOnce::call_once{{vtable.shim}}", "core::ops::function::FnOnce::call_once"),
            (
                "<demo::Body as core::future::future::Future>::poll",
                "<demo::Body as core::future::future::Future>::poll",
            ),
            (
                "<demo::Body<u8> as demo::Read<alloc::vec::Vec<u8>>>::read::{{closure}}",
                "<demo::Body as demo::Read>::read",
            ),
            ("demo::map::<alloc::vec::Vec<u8>, fn() -> u8>", "demo::map"),
            (
                "<alloc::boxed::Box<dyn core::ops::FnOnce<(), Output = ()> + demo::Send> as demo::Run<()>>::run",
                "<alloc::boxed::Box as demo::Run>::run",
            ),
            ("load<u64>", "load"),
            ("do_call<demo::run::{closure#0}::{closure_env#0}, fn(u8) -> u8>", "do_call"),
            ("clock_nanosleep", "clock_nanosleep"),
            ("operator<", "operator<"),
            ("{async_fn#0}", "async fn inlined into demo::main"),
            ("{async_block#2}", "async block inlined into demo::main"),
            ("{closure#0}<demo::Body, ()>", "closure inlined into demo::main"),
        ] {
            assert_eq!(readable(name, Some("demo::main")), read, "{name}");
        }
        assert_eq!(readable("{async_fn#0}", None), "async fn");
    }

    #[test]
    fn a_truncated_name_causes_no_error() {
        for name in ["", "<", ">", "{", "}", "demo::{", "demo::{{clo", "a<b", "::<", "{#", "é<é>::{é"] {
            let _read = readable(name, None);
            let _crate = crate_of(name);
        }
    }

    #[test]
    fn a_mangled_name_is_read_in_both_manglings() {
        assert_eq!(
            demangled("_ZN4demo5fetch28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE"),
            "demo::fetch::{{closure}}"
        );
        assert_eq!(demangled("_RNvC4demo5fetch"), "demo::fetch");
        assert_eq!(demangled("clock_nanosleep"), "clock_nanosleep");
    }

    #[test]
    fn the_file_and_the_crate_identify_the_applications_code() {
        const VOLT: &str = "/src/volt/runtime/";
        let is_user_code = |name, file| is_user_code(name, file, Some(VOLT));
        for (name, file) in [
            ("demo::fetch::{{closure}}", Some("/src/demo/src/main.rs")),
            ("demo::fetch", None),
            ("<demo::Body as core::future::future::Future>::poll", None),
            ("<&mut demo::Body as std::io::Read>::read", None),
            // Bare names, in a program with line tables only.
            ("{async_fn#0}", Some("/src/demo/src/main.rs")),
            ("fetch", Some("/src/demo/src/main.rs")),
            // C code of the application.
            ("hash_block", Some("/src/demo/c/hash.c")),
            // Another project's folder of the same name.
            ("demo::fetch", Some("/src/demo/runtime/src/main.rs")),
            // Volt's own tests are applications.
            ("{async_fn#0}", Some("/src/volt/runtime/tests/scheduler/stuck/incidents.rs")),
            ("{async_fn#0}", Some("/src/volt/runtime/process/tests/processes/mail.rs")),
        ] {
            assert!(is_user_code(Some(name), file), "{name} of {file:?}");
        }
        for (name, file) in [
            ("std::thread::sleep", Some("/rustc/5980/library/std/src/thread/mod.rs")),
            ("std::thread::sleep", None),
            ("sleep", Some("/rustc/5980/library/std/src/thread/mod.rs")),
            ("sleep", Some("/root/.rustup/toolchains/stable/lib/rustlib/src/rust/library/std/src/thread/mod.rs")),
            ("hashbrown::map::insert", Some("/rust/deps/hashbrown-0.16.1/src/map.rs")),
            ("<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once", None),
            ("<&T as core::fmt::Display>::fmt", None),
            (
                "serde_json::de::parse",
                Some("/home/me/.cargo/registry/src/index.crates.io-1/serde_json-1.0.0/src/de.rs"),
            ),
            (
                "serde_json::de::parse",
                Some("/usr/local/cargo/registry/src/index.crates.io-1/serde_json-1.0.0/src/de.rs"),
            ),
            ("own::fork::run", Some("/usr/local/cargo/git/checkouts/own-1/2/src/lib.rs")),
            ("volt::task::cell::run", None),
            ("<volt::task::cell::Cell<demo::Body> as volt::task::header::Run>::run", None),
            ("volt_process::runner::run", None),
            ("run", Some("/src/volt/runtime/src/task/cell.rs")),
            ("{async_fn#0}", Some("/src/volt/runtime/process/src/runner.rs")),
            ("__rustc::__rdl_alloc", None),
            ("clock_nanosleep", None),
            ("_start", None),
        ] {
            assert!(!is_user_code(Some(name), file), "{name} of {file:?}");
        }
        assert!(!is_user_code(None, Some("/src/demo/src/main.rs")));
    }

    #[test]
    fn the_replacement_of_tokio_is_no_application_code() {
        let is_user_code =
            |file| super::is_user_code(Some("{async_fn#0}"), Some(file), Some("/t/sources/1.5/volt/runtime/"));
        assert!(!is_user_code("/t/sources/1.5/parts/src/sync/mutex.rs"));
        assert!(!is_user_code("/t/sources/1.5/tokio/src/lib.rs"));
        assert!(!is_user_code("/t/sources/1.5/volt/runtime/src/sync/mutex.rs"));
        assert!(is_user_code("/t/shop/src/main.rs"));
    }

    #[test]
    fn a_name_of_a_megabyte_does_not_overflow_the_stack() {
        let name = "<T as ".repeat(200_000);
        assert!(!is_user_code(Some(&name), None, None), "it names no crate");
        assert!(is_user_code(Some(&(name.clone() + "demo::Read>::read")), None, None));
        assert_eq!(readable(&name, None), name);
    }
}
