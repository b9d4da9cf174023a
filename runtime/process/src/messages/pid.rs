//! Names of processes: which node, which place in its table, and which of those that have had that
//! place.
//!
//! Shape: 12 bytes, `Copy`. As text `node:index.generation`, for example `local:17.3`; that text
//! parses back, on every node.
//!
//! Node names are kept once each for the life of the program (`NODES_MAX`), so that a pid holds a
//! number instead of a text.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{OnceLock, PoisonError, RwLock};

/// Node names that a program may know. They come from configuration, and with pids from other
/// nodes, so that a broken or hostile node could make up any number of them; a cluster of more
/// nodes than this is none that one relay serves.
const NODES_MAX: usize = 4096;
/// Bytes of a node's name. It stands in every pid's text and in the relay's subjects.
const NODE_NAME_MAX: usize = 64;

/// A system of processes, by name: letters, digits, `-` and `_`, at most 64 of them.
///
/// ```
/// use volt_process::Node;
///
/// let node: Node = "eu-west_1".parse()?;
/// assert_eq!(node.to_string(), "eu-west_1");
/// assert_ne!(node, Node::LOCAL);
/// assert!("two words".parse::<Node>().is_err());
/// # Ok::<(), volt_process::ParseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(u32);

/// The names that were seen, and each one's place among them.
#[derive(Default)]
struct Names {
    texts: Vec<&'static str>,
    places: HashMap<&'static str, u32>,
}

impl Names {
    fn add(&mut self, name: &str) -> Option<u32> {
        let place = u32::try_from(self.texts.len()).ok().filter(|&place| (place as usize) < NODES_MAX)?;
        let text = Box::leak(name.to_owned().into_boxed_str());
        self.texts.push(text);
        self.places.insert(text, place);
        Some(place)
    }
}

fn names() -> &'static RwLock<Names> {
    static NAMES: OnceLock<RwLock<Names>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let mut names = Names::default();
        let local = names.add("local");
        assert_eq!(local, Some(Node::LOCAL.0), "the first name");
        RwLock::new(names)
    })
}

impl Node {
    /// `local`: the name of a system that was given none, and that no other node can reach.
    pub const LOCAL: Node = Node(0);

    /// Its name.
    pub fn name(self) -> &'static str {
        names().read().unwrap_or_else(PoisonError::into_inner).texts[self.0 as usize]
    }
}

impl FromStr for Node {
    type Err = ParseError;

    fn from_str(name: &str) -> Result<Node, ParseError> {
        let known = names().read().unwrap_or_else(PoisonError::into_inner).places.get(name).copied();
        if let Some(place) = known {
            return Ok(Node(place));
        }
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > NODE_NAME_MAX || !name.bytes().all(legal) {
            return Err(ParseError::new(name, Fault::Node));
        }
        let mut names = names().write().unwrap_or_else(PoisonError::into_inner);
        // Two threads may have come this far with one name.
        let place = names.places.get(name).copied().or_else(|| names.add(name));
        place.map(Node).ok_or_else(|| ParseError::new(name, Fault::TooManyNodes))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.name())
    }
}

/// A process, for as long as anybody remembers it: no later process bears the same.
///
/// ```
/// use volt_process::Pid;
///
/// let pid: Pid = "local:17.3".parse()?;
/// assert_eq!((pid.index(), pid.generation()), (17, 3));
/// assert_eq!(pid.to_string(), "local:17.3");
/// # Ok::<(), volt_process::ParseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid {
    node: Node,
    index: u32,
    generation: u32,
}

impl Pid {
    pub(crate) fn new(node: Node, index: u32, generation: u32) -> Self {
        Self { node, index, generation }
    }

    /// Where it runs.
    pub fn node(self) -> Node {
        self.node
    }

    /// Its place in its node's table; used again once the process has ended.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Tells it from those that had that place before. Counts from 0 on, or in a system with a
    /// [relay](crate::Relay) from a random number, so that the pids of an earlier life of its
    /// node are nobody's.
    pub fn generation(self) -> u32 {
        self.generation
    }

    /// The pid without its node.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.generation)
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}.{}", self.node, self.index, self.generation)
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pid({self})")
    }
}

impl FromStr for Pid {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Pid, ParseError> {
        // `parse` takes a sign, and leading zeros; a pid has one text only.
        let number = |digits: &str| digits.parse::<u32>().ok().filter(|number| number.to_string() == digits);
        let parts = text.split_once(':').and_then(|(node, place)| {
            let (index, generation) = place.split_once('.')?;
            Some((node, number(index)?, number(generation)?))
        });
        let (node, index, generation) = parts.ok_or_else(|| ParseError::new(text, Fault::Pid))?;
        Ok(Pid { node: node.parse()?, index, generation })
    }
}

/// A text is no pid, or no node's name.
#[derive(Clone, Debug)]
pub struct ParseError {
    text: String,
    fault: Fault,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Pid,
    Node,
    TooManyNodes,
}

impl ParseError {
    fn new(text: &str, fault: Fault) -> Self {
        // What comes from outside may be of any length.
        Self { text: text.chars().take(NODE_NAME_MAX + 32).collect(), fault }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        match self.fault {
            Fault::Pid => {
                write!(f, "{text:?} is no pid: it has to look like local:17.3, which is node:index.generation")
            }
            Fault::Node => {
                write!(f, "{text:?} is no name for a node: use 1 to {NODE_NAME_MAX} letters, digits, - and _")
            }
            Fault::TooManyNodes => {
                write!(f, "{text:?} would be one node more than the {NODES_MAX} that a program may know")
            }
        }
    }
}

impl std::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_parses_back_from_its_text() {
        for text in ["local:0.0", "a-b_C9:4294967295.4294967295", "local:17.3"] {
            assert_eq!(text.parse::<Pid>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_pid_is_refused_and_named() {
        let long = format!("{}:1.1", "n".repeat(NODE_NAME_MAX + 1));
        let texts = ["", ":", "local", "local:1", "local:1.", "local:.1", "local:-1.1", "local:+1.1", "local:01.1"];
        let more =
            ["local:1.4294967296", "local:1.1.1", "lo cal:1.1", ":1.1", "lo.cal:1.1", "é:1.1", "local:1.1 ", &long];
        for text in texts.into_iter().chain(more) {
            let error = text.parse::<Pid>().unwrap_err().to_string();
            assert!(error.contains("is no pid") || error.contains("is no name for a node"), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_pid_is_twelve_bytes() {
        assert_eq!(size_of::<Pid>(), 12);
    }
}
