//! Checks that `PROOF.md` and the page on differences from Tokio name only things that exist.

use std::fs;
use std::path::Path;

#[test]
fn everything_that_the_page_of_proofs_names_exists() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(folder.join("PROOF.md")).unwrap();
    let mut tests = 0;
    for named in page.split('`').skip(1).step_by(2) {
        let (file, test) = named.split_once("::").map_or((named, None), |(file, test)| (file, Some(test)));
        if !file.ends_with(".rs") {
            // A command, or a word.
            continue;
        }
        let text = fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        if let Some(test) = test {
            assert!(text.contains(&format!("\nfn {test}()")) || text.contains(&format!("    fn {test}()")), "{named}");
            tests += 1;
        }
    }
    assert!(tests > 40, "only {tests} tests are named");
}

#[test]
fn every_test_that_the_page_on_tokio_names_exists() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(folder.join("../docs/tokio.md")).unwrap();
    let named = page.split('`').skip(1).step_by(2).filter(|named| named.starts_with("tests/"));
    let named = named.inspect(|named| assert!(folder.join(named).is_file(), "{named}"));
    assert!(named.count() > 20);
}
