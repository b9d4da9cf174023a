//! Rewrites an `async fn` as a plain function that builds a runtime and blocks on it.
//!
//! The user's function becomes an inner function of the same name, with its body and return type
//! unchanged. The generated outer function has its attributes, visibility and return type.
//!
//! Rejected: wrapping the body in an `async` block. The return type would be inferred, and a wrong
//! `?` or tail expression would be reported far from its cause. Also rejected: parsing the body
//! with syn. That costs compile time, and breaks completion in editors while the body does not
//! parse.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, Result, ReturnType, Signature, Visibility};

use crate::options::{Flavor, Options};

/// The attribute that is being expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// `#[volt::main]`
    Main,
    /// `#[volt::test]`
    Test,
}

/// Default number of workers of a test. Two, so that stealing and waking across threads occur on
/// any machine.
const TEST_WORKERS: usize = 2;

impl Entry {
    fn attribute(self) -> &'static str {
        match self {
            Entry::Main => "#[volt::main]",
            Entry::Test => "#[volt::test]",
        }
    }

    fn default_workers(self) -> Option<usize> {
        match self {
            Entry::Main => None,
            Entry::Test => Some(TEST_WORKERS),
        }
    }
}

/// The user's function, with its body not parsed.
struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    signature: Signature,
    body: TokenStream,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        Ok(Function {
            attributes: input.call(Attribute::parse_outer)?,
            visibility: input.parse()?,
            signature: input.parse()?,
            body: input.parse()?,
        })
    }
}

/// Returns the tokens that replace the item.
///
/// If something is wrong, returns the errors and as much of the function as prevents follow-up
/// errors of the compiler.
pub(crate) fn expand(entry: Entry, options: TokenStream, item: TokenStream) -> TokenStream {
    let function = match syn::parse2::<Function>(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let message = format!("{} requires an `async fn`: {error}", entry.attribute());
            return [Error::new(error.span(), message).to_compile_error(), item].into_iter().collect();
        }
    };
    let (options, options_error) = match Options::parse(options) {
        Ok(options) => (options, None),
        Err(error) => (Options::default(), Some(error.into_compile_error())),
    };
    let expanded = match check(entry, &function) {
        Ok(()) => plain_function(entry, &options, &function),
        Err(error) => [error.into_compile_error(), placeholder(&function)].into_iter().collect(),
    };
    [options_error.unwrap_or_default(), expanded].into_iter().collect()
}

/// Checks the function and reports all problems in one error.
fn check(entry: Entry, function: &Function) -> Result<()> {
    let Signature { ident, inputs, generics, asyncness, fn_token, .. } = &function.signature;
    let attribute = entry.attribute();
    let mut wrong: Vec<Error> = Vec::new();
    if asyncness.is_none() {
        wrong.push(Error::new_spanned(fn_token, format!("{attribute} needs an `async fn`: write `async fn {ident}`")));
    }
    if !inputs.is_empty() {
        let text = match entry {
            Entry::Main => {
                format!("`{ident}` takes no arguments under {attribute}: read the command line with `std::env::args`")
            }
            Entry::Test => format!("`{ident}` takes no arguments under {attribute}: the test harness passes none"),
        };
        wrong.push(Error::new_spanned(inputs, text));
    }
    if !generics.params.is_empty() {
        wrong.push(Error::new_spanned(generics, format!("`{ident}` cannot be generic under {attribute}")));
    }
    if entry == Entry::Test
        && let Some(second) = function.attributes.iter().find(|attribute| attribute.path().is_ident("test"))
    {
        wrong.push(Error::new_spanned(second, format!("{attribute} adds `#[test]` itself: remove this one")));
    }
    match wrong.into_iter().reduce(|mut all, next| {
        all.combine(next);
        all
    }) {
        Some(all) => Err(all),
        None => Ok(()),
    }
}

fn plain_function(entry: Entry, options: &Options, function: &Function) -> TokenStream {
    let Function { attributes, visibility, signature, body } = function;
    let Signature { ident, output, .. } = signature;
    let volt = options.volt.as_ref().map_or_else(|| quote!(::volt), ToTokens::to_token_stream);
    let test = (entry == Entry::Test).then(|| quote!(#[::core::prelude::v1::test]));
    let is_on_one_thread = options.is_on_one_thread();
    let builder = if is_on_one_thread { quote!(new_current_thread) } else { quote!(new_multi_thread) };
    let build = match options.flavor {
        Some(Flavor::Local) => quote!(build_local(::core::default::Default::default())),
        _ => quote!(build()),
    };
    let workers = options.worker_threads.or_else(|| entry.default_workers().filter(|_| !is_on_one_thread));
    let workers = workers.map(|workers| quote!(.worker_threads(#workers)));
    let name = options.name.as_ref().map(|name| quote!(.name(#name)));
    let start_paused = options.start_paused.map(|is_paused| quote!(.start_paused(#is_paused)));
    let failed = failure_text(ident);
    quote! {
        #test
        #(#attributes)*
        #visibility fn #ident() #output {
            #signature #body
            match #volt::Builder::#builder() #workers #name #start_paused .#build {
                ::core::result::Result::Ok(runtime) => runtime.block_on(#ident()),
                ::core::result::Result::Err(error) => ::core::panic!(#failed, error),
            }
        }
    }
}

fn failure_text(ident: &Ident) -> String {
    format!("the Volt runtime of `{ident}` could not be built: {{}}")
}

/// Replaces a rejected function, so that the compiler does not also report that it is missing.
fn placeholder(function: &Function) -> TokenStream {
    let Function { visibility, signature: Signature { ident, output, .. }, .. } = function;
    let output = match output {
        ReturnType::Default => None,
        written => Some(written),
    };
    quote! {
        #visibility fn #ident() #output {
            loop {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_same(left: TokenStream, right: TokenStream) {
        assert_eq!(left.to_string(), right.to_string());
    }

    /// Returns the texts of the `compile_error!` calls, in order.
    fn errors_in(tokens: &TokenStream) -> Vec<String> {
        let file: syn::File = syn::parse2(tokens.clone()).expect("the expansion must be valid Rust");
        let macros = file.items.iter().filter_map(|item| match item {
            syn::Item::Macro(call) => call.mac.parse_body::<syn::LitStr>().ok(),
            _ => None,
        });
        macros.map(|text| text.value()).collect()
    }

    #[test]
    fn main_keeps_attributes_visibility_return_type_and_body() {
        let expanded = expand(
            Entry::Main,
            quote!(worker_threads = 4, name = "service"),
            quote! {
                /// Starts here.
                pub(crate) async fn main() -> Result<(), Error> { serve().await?; Ok(()) }
            },
        );
        let four = 4_usize;
        assert_same(
            expanded,
            quote! {
                /// Starts here.
                pub(crate) fn main() -> Result<(), Error> {
                    async fn main() -> Result<(), Error> { serve().await?; Ok(()) }
                    match ::volt::Builder::new_multi_thread().worker_threads(#four).name("service").build() {
                        ::core::result::Result::Ok(runtime) => runtime.block_on(main()),
                        ::core::result::Result::Err(error) => ::core::panic!(
                            "the Volt runtime of `main` could not be built: {}", error
                        ),
                    }
                }
            },
        );
    }

    #[test]
    fn main_leaves_the_number_of_workers_to_the_builder() {
        let expanded = expand(
            Entry::Main,
            quote!(),
            quote!(
                async fn main() {}
            ),
        )
        .to_string();
        assert!(!expanded.contains("worker_threads"), "{expanded}");
    }

    #[test]
    fn the_test_macro_adds_its_attribute_and_two_workers_by_default() {
        let of = |options| {
            expand(
                Entry::Test,
                options,
                quote!(
                    #[ignore]
                    async fn t() {}
                ),
            )
            .to_string()
        };
        let plain = of(quote!());
        assert!(plain.starts_with("# [:: core :: prelude :: v1 :: test] # [ignore] fn t ()"), "{plain}");
        assert!(plain.contains("worker_threads (2usize)"), "{plain}");
        assert!(of(quote!(worker_threads = 1)).contains("worker_threads (1usize)"));
        let current_thread = of(quote!(flavor = "current_thread"));
        assert!(current_thread.contains("new_current_thread () . build ()"), "{current_thread}");
        let local = of(quote!(flavor = "local"));
        assert!(local.contains("new_current_thread () . build_local ("), "{local}");
    }

    #[test]
    fn volt_is_found_at_the_crate_option() {
        let expanded = expand(
            Entry::Main,
            quote!(crate = facade::rt),
            quote!(
                async fn main() {}
            ),
        )
        .to_string();
        assert!(expanded.contains("facade :: rt :: Builder"), "{expanded}");
        assert!(!expanded.contains(":: volt"), "{expanded}");
    }

    #[test]
    fn a_body_that_does_not_parse_yet_is_passed_on_untouched() {
        let expanded = expand(Entry::Main, quote!(), quote!(async fn main() { let x = foo. ; }));
        assert!(expanded.to_string().contains("{ let x = foo . ; }"), "{expanded}");
    }

    #[test]
    fn the_error_for_a_plain_function_requires_async() {
        let errors = errors_in(&expand(
            Entry::Main,
            quote!(),
            quote!(
                fn main() {}
            ),
        ));
        assert_eq!(errors, ["#[volt::main] needs an `async fn`: write `async fn main`"]);
    }

    #[test]
    fn all_errors_of_a_function_are_reported_together() {
        let item = quote!(
            #[test]
            fn t<T>(x: T) {}
        );
        let errors = errors_in(&expand(Entry::Test, quote!(workers = 2), item));
        let about = ["unknown option `workers`", "`async fn t`", "no arguments", "generic", "adds `#[test]` itself"];
        assert_eq!(errors.len(), about.len(), "{errors:?}");
        for (error, about) in errors.iter().zip(about) {
            assert!(error.contains(about), "{about:?} is missing in {error:?}");
        }
    }

    #[test]
    fn arguments_of_main_are_refused_with_a_remedy() {
        let errors = errors_in(&expand(
            Entry::Main,
            quote!(),
            quote!(
                async fn main(args: Vec<String>) {}
            ),
        ));
        assert!(errors[0].contains("`main` takes no arguments") && errors[0].contains("std::env::args"), "{errors:?}");
    }

    #[test]
    fn an_item_that_is_no_function_is_refused_and_kept() {
        let tokens = expand(
            Entry::Main,
            quote!(),
            quote!(
                struct Main;
            ),
        );
        let errors = errors_in(&tokens);
        assert!(errors[0].starts_with("#[volt::main] requires an `async fn`: "), "{errors:?}");
        assert!(tokens.to_string().ends_with("struct Main ;"));
    }

    #[test]
    fn a_wrong_option_does_not_hide_the_function() {
        let tokens = expand(
            Entry::Main,
            quote!(worker_threads = 0),
            quote!(
                async fn main() {}
            ),
        );
        assert_eq!(errors_in(&tokens).len(), 1);
        assert!(tokens.to_string().contains("block_on (main ())"));
    }
}
