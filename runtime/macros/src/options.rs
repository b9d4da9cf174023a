//! Parses the arguments of `#[volt::main(…)]` and `#[volt::test(…)]`.
//!
//! Invariant: NO OPTION IS IGNORED. An option that is unknown, repeated or of the wrong type is a
//! compile error at its position in the source.

use proc_macro2::TokenStream;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::{Error, LitBool, LitInt, LitStr, Path, Result};

/// The parsed options; `None` for each option that was not given.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) flavor: Option<Flavor>,
    pub(crate) worker_threads: Option<usize>,
    pub(crate) name: Option<String>,
    pub(crate) start_paused: Option<bool>,
    /// The path of the `volt` crate, from `crate = path`.
    pub(crate) volt: Option<Path>,
}

/// Where the tasks of the runtime run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    MultiThread,
    CurrentThread,
    /// On the current thread, with futures that need not be `Send`.
    Local,
}

/// The list of options in the message about an unknown option.
const KNOWN: &str = "`flavor = \"…\"`, `worker_threads = N`, `name = \"…\"`, `start_paused = true` and `crate = path`";

impl Options {
    /// Parses the tokens between the parentheses. Without tokens, all options keep their defaults.
    pub(crate) fn parse(tokens: TokenStream) -> Result<Self> {
        let mut options = Options::default();
        syn::meta::parser(|meta| options.take(&meta)).parse2(tokens.clone())?;
        if options.is_on_one_thread() && options.worker_threads.is_some() {
            return Err(Error::new_spanned(
                tokens,
                "a current-thread runtime has no worker threads: remove `worker_threads`, or use `flavor = \"multi_thread\"`",
            ));
        }
        Ok(options)
    }

    /// Returns whether the thread in `block_on` runs the tasks.
    pub(crate) fn is_on_one_thread(&self) -> bool {
        matches!(self.flavor, Some(Flavor::CurrentThread | Flavor::Local))
    }

    fn take(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("flavor") {
            set_once(&mut self.flavor, meta, flavor)
        } else if meta.path.is_ident("worker_threads") {
            set_once(&mut self.worker_threads, meta, worker_threads)
        } else if meta.path.is_ident("name") {
            set_once(&mut self.name, meta, name)
        } else if meta.path.is_ident("start_paused") {
            set_once(&mut self.start_paused, meta, start_paused)
        } else if meta.path.is_ident("crate") {
            set_once(&mut self.volt, meta, |meta| meta.value()?.parse())
        } else {
            Err(meta.error(format!("unknown option `{}`: the options are {KNOWN}", written(&meta.path))))
        }
    }
}

fn set_once<'a, T>(
    slot: &mut Option<T>,
    meta: &ParseNestedMeta<'a>,
    read: impl FnOnce(&ParseNestedMeta<'a>) -> Result<T>,
) -> Result<()> {
    if slot.is_some() {
        return Err(meta.error(format!("`{}` is given twice", written(&meta.path))));
    }
    *slot = Some(read(meta)?);
    Ok(())
}

fn flavor(meta: &ParseNestedMeta<'_>) -> Result<Flavor> {
    const EXPECTED: &str = "`flavor` is \"multi_thread\", the default, \"current_thread\" or \"local\"";
    let text: LitStr = meta.value()?.parse().map_err(|error| Error::new(error.span(), EXPECTED))?;
    match text.value().as_str() {
        "multi_thread" => Ok(Flavor::MultiThread),
        "current_thread" => Ok(Flavor::CurrentThread),
        "local" => Ok(Flavor::Local),
        _ => Err(Error::new(text.span(), EXPECTED)),
    }
}

fn worker_threads(meta: &ParseNestedMeta<'_>) -> Result<usize> {
    const EXPECTED: &str = "`worker_threads` takes a whole number, such as `worker_threads = 4`";
    let number: LitInt = meta.value()?.parse().map_err(|error| Error::new(error.span(), EXPECTED))?;
    match number.base10_parse() {
        Ok(0) => Err(Error::new(
            number.span(),
            "`worker_threads = 0`: a runtime needs at least 1 worker; leave the option out for the default",
        )),
        Ok(threads) => Ok(threads),
        Err(error) => Err(Error::new(number.span(), format!("{EXPECTED}: {error}"))),
    }
}

fn name(meta: &ParseNestedMeta<'_>) -> Result<String> {
    let value = meta.value()?;
    let text: LitStr = value
        .parse()
        .map_err(|error| Error::new(error.span(), "`name` takes a string, such as `name = \"service\"`"))?;
    match text.value() {
        empty if empty.is_empty() => {
            Err(Error::new(text.span(), "`name` is empty: leave the option out for the default"))
        }
        name => Ok(name),
    }
}

fn start_paused(meta: &ParseNestedMeta<'_>) -> Result<bool> {
    let value = meta.value()?;
    let is_paused: LitBool =
        value.parse().map_err(|error| Error::new(error.span(), "`start_paused` takes `true` or `false`"))?;
    Ok(is_paused.value)
}

fn written(path: &Path) -> String {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>().join("::")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::{ToTokens, quote};

    fn error_of(tokens: TokenStream) -> String {
        Options::parse(tokens).err().expect("must be refused").to_string()
    }

    #[test]
    fn without_arguments_no_option_is_set() {
        let options = Options::parse(quote!()).unwrap();
        assert!(options.worker_threads.is_none() && options.name.is_none());
        assert!(options.start_paused.is_none() && options.volt.is_none());
    }

    #[test]
    fn every_option_is_read_in_any_order_and_with_a_trailing_comma() {
        let options = Options::parse(quote!(
            crate = crate::inner::volt,
            name = "service",
            start_paused = true,
            worker_threads = 1_6,
        ))
        .unwrap();
        assert_eq!(options.worker_threads, Some(16));
        assert_eq!(options.name.as_deref(), Some("service"));
        assert_eq!(options.start_paused, Some(true));
        assert_eq!(options.volt.to_token_stream().to_string(), "crate :: inner :: volt");
    }

    #[test]
    fn an_unknown_option_is_named_and_the_known_ones_are_listed() {
        let error = error_of(quote!(threads = 4));
        assert_eq!(
            error,
            "unknown option `threads`: the options are `flavor = \"…\"`, `worker_threads = N`, `name = \"…\"`, `start_paused = true` and `crate = path`"
        );
    }

    #[test]
    fn no_workers_are_refused_with_a_remedy() {
        let both = error_of(quote!(flavor = "current_thread", worker_threads = 2));
        assert!(both.contains("remove `worker_threads`"), "{both}");
        let local = error_of(quote!(flavor = "local", worker_threads = 2));
        assert_eq!(local, both);
        assert!(error_of(quote!(flavor = "threads")).contains("\"current_thread\""));
        let error = error_of(quote!(worker_threads = 0));
        assert!(error.contains("`worker_threads = 0`") && error.contains("leave the option out"), "{error}");
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_refused_with_an_example() {
        assert!(error_of(quote!(worker_threads = "4")).contains("such as `worker_threads = 4`"));
        assert!(error_of(quote!(worker_threads = -1)).contains("such as `worker_threads = 4`"));
        assert!(error_of(quote!(name = 4)).contains("such as `name = \"service\"`"));
        assert!(error_of(quote!(name = "")).contains("`name` is empty"));
        assert_eq!(error_of(quote!(start_paused = 1)), "`start_paused` takes `true` or `false`");
    }

    #[test]
    fn an_option_given_twice_or_without_a_value_is_refused() {
        assert_eq!(error_of(quote!(name = "a", name = "b")), "`name` is given twice");
        assert_eq!(error_of(quote!(worker_threads)), "expected `=`");
        assert!(error_of(quote!(4)).contains("unexpected literal"));
    }

    #[test]
    fn a_number_beyond_usize_is_an_error_and_no_panic() {
        assert!(error_of(quote!(worker_threads = 99999999999999999999999)).contains("too large"));
    }
}
