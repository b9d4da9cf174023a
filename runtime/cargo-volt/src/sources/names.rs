//! The names of the folders and packages that are written.

/// The folder of the facade, below that of the sources.
pub(crate) const FACADE: &str = "tokio";
/// The folder of the copy.
pub(super) const PARTS: &str = "parts";
/// The folder of Volt's crates, which are in it as in Volt's repository.
pub(super) const VOLT: &str = "volt";
/// The name of the copy's package. Its library is still named `tokio`.
pub(crate) const PARTS_PACKAGE: &str = "volt-tokio-parts";

/// Returns the name of the folder for the copy of a version of axum. It is like that of a package
/// from a registry, so that the code in it is shown as that of a library, and not as the program's.
pub(super) fn axum(version: &str) -> String {
    format!("registry/src/volt/axum-{version}")
}
