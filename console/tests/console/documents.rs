//! The documents of the repository, and the commands in their `sh` blocks. The tests of several
//! packages compare these commands with the programs.

use std::fs;
use std::path::{Path, PathBuf};

/// A command in a document.
#[derive(Debug)]
pub struct Command {
    /// The document and the line, for messages.
    pub place: String,
    /// Its words, without assignments of variables, redirections and quotes.
    pub words: Vec<String>,
}

impl Command {
    /// Returns the words after the program `name`, if the command runs it: directly, through
    /// another program such as `docker exec`, or with `cargo run --bin NAME --`.
    pub fn arguments_of(&self, name: &str) -> Option<&[String]> {
        let is_cargo = self.words.first().is_some_and(|word| word == "cargo");
        if !is_cargo {
            let at = self.words.iter().position(|word| word == name || word.ends_with(&format!("/{name}")))?;
            return Some(&self.words[at + 1..]);
        }
        let is_it = self.words.windows(2).any(|pair| pair == ["--bin", name]);
        let end = self.words.iter().position(|word| word == "--").map_or(self.words.len(), |at| at + 1);
        is_it.then_some(&self.words[end..])
    }
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the pages of the book, `SUMMARY.md` included.
pub fn pages() -> Vec<PathBuf> {
    let (mut pages, mut folders) = (Vec::new(), vec![root().join("docs")]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// Returns the commands of the book, and of the documents that it links to.
pub fn commands() -> Vec<Command> {
    let mut documents = pages();
    let others = ["README.md", "dashboards/README.md", "console/README.md", "exporter/README.md", "CONTRIBUTING.md"];
    documents.extend(others.map(|name| root().join(name)));
    documents.iter().flat_map(|path| commands_of(path)).collect()
}

fn commands_of(document: &Path) -> Vec<Command> {
    let text = fs::read_to_string(document).unwrap();
    let name = document.strip_prefix(root()).unwrap().display().to_string();
    let (mut commands, mut is_shell, mut joined) = (Vec::new(), false, String::new());
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_shell = line.trim() == "```sh";
        } else if is_shell {
            joined.push_str(line);
            if !line.ends_with('\\') {
                let words = split(&std::mem::take(&mut joined));
                commands
                    .extend(words.into_iter().map(|words| Command { place: format!("{name}:{}", number + 1), words }));
                continue;
            }
            joined.pop();
        }
    }
    commands
}

/// Splits a line of a shell into commands, and these into words.
fn split(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), String::new());
    let (mut quote, mut is_word, mut before) = (None, false, ' ');
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
            (None, '#') if before == ' ' => break,
            (None, ' ' | '|' | ';' | '&' | '(' | ')' | '`') => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
                if c != ' ' {
                    commands.push(std::mem::take(&mut words));
                }
            }
            (None, c) => {
                word.push(c);
                is_word = true;
            }
        }
        before = c;
    }
    if is_word {
        words.push(word);
    }
    commands.push(words);
    commands.into_iter().map(without_shell).filter(|words| !words.is_empty()).collect()
}

/// Removes the assignments of variables before a command, and its redirections.
fn without_shell(words: Vec<String>) -> Vec<String> {
    let is_variable = |word: &String| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
    };
    let words: Vec<_> = words.into_iter().skip_while(is_variable).collect();
    let end = words.iter().position(|word| word.trim_start_matches(['1', '2']).starts_with('>'));
    words.into_iter().take(end.unwrap_or(usize::MAX)).collect()
}
