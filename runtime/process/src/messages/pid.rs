//! Process identifiers and node names.
//!
//! A pid names a node, a place in its table of processes, and a generation, which distinguishes the
//! processes that have had that place. It has 12 bytes, and is `Copy`. Its text form is
//! `node:index.generation`, for example `local:17.3`, and can be parsed on every node.
//!
//! A pid contains the number of its node's name instead of the text. Each name that a program has
//! seen is kept until the program exits; there are at most `NODES_MAX`.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{OnceLock, PoisonError, RwLock};

/// The maximum number of node names per program. Names come from the configuration and with pids
/// from other nodes, so a faulty or hostile node could invent any number of them. No relay serves a
/// cluster of more nodes than this.
const NODES_MAX: usize = 4096;
/// The maximum length of a node name in bytes. It is part of the text of every pid, and of the
/// relay's subjects.
const NODE_NAME_MAX: usize = 64;

/// The name of a system of processes: 1 to 64 letters, digits, `-` and `_`.
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

/// The names that the program has seen, and the number of each.
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
    /// `local`, the name of a system that was built without a name. Other nodes cannot reach it.
    pub const LOCAL: Node = Node(0);

    /// Returns the name.
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
        // Another thread may have added the name between the two locks.
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

/// A process identifier. It is never reused for another process.
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

    /// Returns the node on which the process runs.
    pub fn node(self) -> Node {
        self.node
    }

    /// Returns its place in the table of its node. The place is used again after the process has
    /// exited.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Returns the generation, which distinguishes the process from earlier ones with the same
    /// index. It counts from 0. In a system with a [relay](crate::Relay), it counts from a random
    /// number, so that pids of an earlier incarnation of the node do not become valid again.
    pub fn generation(self) -> u32 {
        self.generation
    }

    /// The pid without its node, as a number.
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
        // `parse` accepts a sign and leading zeros, but a pid has only one text.
        let number = |digits: &str| digits.parse::<u32>().ok().filter(|number| number.to_string() == digits);
        let parts = text.split_once(':').and_then(|(node, place)| {
            let (index, generation) = place.split_once('.')?;
            Some((node, number(index)?, number(generation)?))
        });
        let (node, index, generation) = parts.ok_or_else(|| ParseError::new(text, Fault::Pid))?;
        Ok(Pid { node: node.parse()?, index, generation })
    }
}

/// Error returned when a text is not a valid pid or node name, or when the program already has 4096
/// node names.
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
        // The text may come from outside, and be of any length.
        Self { text: text.chars().take(NODE_NAME_MAX + 32).collect(), fault }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        match self.fault {
            Fault::Pid => {
                write!(f, "{text:?} is not a pid: use the form local:17.3, which is node:index.generation")
            }
            Fault::Node => {
                write!(f, "{text:?} is not a node name: use 1 to {NODE_NAME_MAX} letters, digits, - and _")
            }
            Fault::TooManyNodes => {
                write!(f, "{text:?} cannot be stored: this program already has {NODES_MAX} node names")
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
    fn an_invalid_pid_is_refused_and_named() {
        let long = format!("{}:1.1", "n".repeat(NODE_NAME_MAX + 1));
        let texts = ["", ":", "local", "local:1", "local:1.", "local:.1", "local:-1.1", "local:+1.1", "local:01.1"];
        let more =
            ["local:1.4294967296", "local:1.1.1", "lo cal:1.1", ":1.1", "lo.cal:1.1", "é:1.1", "local:1.1 ", &long];
        for text in texts.into_iter().chain(more) {
            let error = text.parse::<Pid>().unwrap_err().to_string();
            assert!(error.contains("is not a pid") || error.contains("is not a node name"), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_pid_is_twelve_bytes() {
        assert_eq!(size_of::<Pid>(), 12);
    }
}
