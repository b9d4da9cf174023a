//! A copy of axum that counts its requests by route.
//!
//! Only axum can match a path, and it passes the result neither to Tokio nor to a log. The copy
//! therefore has three changes, all in text that the versions 0.7 and 0.8 have in common:
//!
//! 1. It has the module `volt_routes`, which is Volt's file for native programs.
//! 2. A `Route`, in which axum puts each handler and each service, has Volt's `RouteService` around
//!    it.
//! 3. The extension `MatchedPath` does not depend on axum's feature `matched-path`.
//!
//! No change moves a line, so that stacks show the lines of the original.

// Rejected: the spans of `tracing`. hyper's are behind an unstable flag. The default span of
// tower-http has the path of the request, of which there may be any number, and not the route. And
// the program has installed its only subscriber by itself: a layer cannot be added to it later. A
// subscriber around it on each worker, by `set_default`, would make every span and event slower,
// and `Dispatch::downcast_ref`, which tracing-opentelemetry needs, cannot be passed on.

use std::path::Path;

use super::{File, add_copy, embedded, manifests, names};
use crate::error::Error;
use crate::project::read_toml;

/// The module that counts the requests, in Volt's repository.
const ROUTES: &str = "runtime/src/bridge/axum/route.rs";
/// The code that is added to the root of the crate. The module refers to the crate `axum`, and to
/// modules of the crate `volt` as its own. Version 0.7 denies `unreachable_pub`, which has to be
/// allowed by name.
const ROOT: &str = "
#[allow(warnings)]
extern crate self as axum;
#[allow(warnings, unreachable_pub)]
mod volt_routes;
#[allow(warnings)]
use volt::{observe, telemetry};
";
/// The condition of what belongs to `MatchedPath`, and the one that replaces it.
const FEATURE: (&str, &str) = ("feature = \"matched-path\"", "all()");
/// The types in which a `Route` has its service, and what they require of it in addition.
const BOXES: [(&str, &str); 2] = [("BoxCloneSyncService", " + Sync"), ("BoxCloneService", "")];

/// Adds the copy of a version, made from its unpacked sources. Returns whether the copy counts its
/// requests: if its text is not as expected, it remains as it is.
pub(crate) fn add(version: &str, unpacked: &Path, files: &mut Vec<File>) -> Result<bool, Error> {
    let folder = names::axum(version);
    let manifest = manifests::axum(read_toml(&unpacked.join("Cargo.toml"))?, &folder);
    files.push((format!("{folder}/Cargo.toml"), manifest.into()));
    let first = files.len();
    add_copy(&unpacked.join("src"), &format!("{folder}/src"), files)?;
    let copy = &mut files[first..];
    let route = format!("{folder}/src/routing/route.rs");
    let root = format!("{folder}/src/lib.rs");
    let Some(changed) = copy.iter().find(|(path, _)| *path == route).and_then(|(_, text)| around_each(text)) else {
        return Ok(false);
    };
    for (path, content) in copy {
        if *path == route {
            *content = changed.clone().into();
        } else if *path == root {
            content.extend_from_slice(ROOT.as_bytes());
        }
        // Other files, such as the documentation, may not be text.
        if let Ok(text) = str::from_utf8(content)
            && text.contains(FEATURE.0)
        {
            *content = text.replace(FEATURE.0, FEATURE.1).into();
        }
    }
    files.push((format!("{folder}/src/volt_routes.rs"), embedded(ROUTES).into()));
    Ok(true)
}

/// Changes the file of `Route` so that each has a `RouteService` around its service. Returns `None`
/// if the file does not put services into a box at exactly one place.
fn around_each(text: &[u8]) -> Option<String> {
    let text = str::from_utf8(text).ok()?;
    let mut places = BOXES.iter().filter(|(name, _)| text.contains(&format!("{name}::new(")));
    let ((name, bound), None) = (places.next()?, places.next()) else { return None };
    let place = format!("{name}::new(");
    (text.matches(&place).count() == 1).then(|| {
        let changed = text.replace(&place, "volt_boxed(");
        format!(
            "{changed}
fn volt_boxed<S, E>(service: S) -> {name}<Request, Response, E>
where
    S: tower_service::Service<Request, Response = Response, Error = E> + Clone + Send{bound} + 'static,
    S::Future: Send + 'static,
{{
    {place}tower_layer::Layer::layer(&crate::volt_routes::RouteLayer::new(), service))
}}
"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_known_file_of_routes_is_changed() {
        for (name, bound) in BOXES {
            let text = format!("use {name};\nfn new() {{\n    Self({name}::new(Map::new(svc)))\n}}\n");
            let changed = around_each(text.as_bytes()).expect("it has one place");
            assert!(
                changed.starts_with(&format!("use {name};\nfn new() {{\n    Self(volt_boxed(Map::new(svc)))\n}}\n"))
            );
            assert!(changed.contains(&format!("+ Send{bound} + 'static,")), "{changed}");
        }
        for text in ["", "BoxService::new(svc)", "BoxCloneService::new(a) BoxCloneService::new(b)"] {
            assert_eq!(around_each(text.as_bytes()), None);
        }
        assert_eq!(around_each(b"BoxCloneService::new(a) BoxCloneSyncService::new(b)"), None);
    }
}
