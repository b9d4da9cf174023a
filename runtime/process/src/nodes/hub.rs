//! A relay within one program: several systems that reach each other without a server. For tests,
//! and for trying out.
//!
//! Each member has an inbox, which a task of its system's runtime empties. What one member sends
//! another goes into that inbox at once, so that the order is that of the sends. Frames count
//! against the inbox's bound; nodes that come and go do not, and are as many as somebody cuts and
//! joins.
//!
//! Invariant: no code of a system runs under the hub's lock, nor under an inbox's.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::relay::{Incoming, Peer, Relay, RelayError};
use crate::messages::pid::Node;
use volt::sync::Notify;
use volt::task;

/// Frames that wait in an inbox, unless the hub says otherwise.
const CAPACITY: usize = 4096;
/// Frames that a member's task hands over before it lets others run.
const BATCH: usize = 64;

/// Joins systems of one program. Cheap to clone; all clones are the same hub.
///
/// ```
/// use std::time::Duration;
/// use volt_process::{ExitReason, Hub, Node, Payload, Spawn, System};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let (alpha, beta): (Node, Node) = ("alpha".parse()?, "beta".parse()?);
/// let hub = Hub::new();
/// let here = System::builder().relay(hub.join(alpha)).build(&volt::Handle::current())?;
/// let there = System::builder().relay(hub.join(beta)).build(&volt::Handle::current())?;
///
/// let shout = volt_process::from_fn(async |mut inbox, _input| {
///     while let Some(message) = inbox.recv().await {
///         if let (Some(reply), Some(text)) = (message.reply, message.payload.as_bytes()) {
///             reply.send(Payload::bytes(text.to_ascii_uppercase()));
///         }
///     }
///     Ok(Payload::empty())
/// });
/// there.spawn(Spawn::new(shout).name("shout"))?;
///
/// here.wait_for_node(beta).await;
/// let shout = here.whereis_on(beta, "shout").await?.expect("it was started");
/// let answer = here.call(shout, Payload::bytes("hello"), Duration::from_secs(5)).await?;
/// assert_eq!(answer.as_bytes().unwrap(), "HELLO".as_bytes());
///
/// let ends = here.wait(shout);
/// hub.cut(alpha, beta);
/// assert_eq!(ends.await, ExitReason::NoConnection);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Clone, Default)]
pub struct Hub(Arc<Mutex<Members>>);

#[derive(Default)]
struct Members {
    members: HashMap<Node, Member>,
    /// Pairs that are cut, the lower node first.
    cuts: HashSet<(Node, Node)>,
}

#[derive(Clone)]
struct Member {
    peer: Peer,
    inbox: Arc<Inbox>,
}

struct Inbox {
    queue: Mutex<Queue>,
    filled: Notify,
    capacity: usize,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    frames: usize,
    is_closed: bool,
}

enum Item {
    Up(Peer),
    Down(Peer),
    Frame(Peer, Bytes),
}

impl Hub {
    /// A hub without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// The relay of a node that is to be a member; it is one once a system was built with it.
    pub fn join(&self, node: Node) -> HubRelay {
        self.join_with(node, CAPACITY)
    }

    /// As [`join`](Self::join), with room for `capacity` frames that wait for the node; senders of
    /// more are refused.
    pub fn join_with(&self, node: Node, capacity: usize) -> HubRelay {
        HubRelay { hub: self.clone(), node, capacity, me: Mutex::default() }
    }

    /// Cuts two nodes off from each other: each finds the other lost, and frames between them that
    /// wait are dropped.
    pub fn cut(&self, one: Node, other: Node) {
        self.sever(one, other, true);
        self.lose(one, other);
        self.lose(other, one);
    }

    /// Makes `node` find that `other` is lost, while `other` notices nothing: as if `other` had
    /// been stopped for a while. Until they are [joined](Self::mend) again, no frame gets
    /// through.
    pub fn lose(&self, node: Node, other: Node) {
        self.sever(node, other, true);
        let (member, lost) = (self.member(node), self.member(other));
        if let (Some(member), Some(lost)) = (member, lost) {
            member.inbox.forget(lost.peer);
            member.inbox.put(Item::Down(lost.peer));
        }
    }

    /// Joins two nodes again.
    pub fn mend(&self, one: Node, other: Node) {
        self.sever(one, other, false);
        if let (Some(one), Some(other)) = (self.member(one), self.member(other)) {
            one.inbox.put(Item::Up(other.peer));
            other.inbox.put(Item::Up(one.peer));
        }
    }

    fn sever(&self, one: Node, other: Node, is_cut: bool) {
        let pair = (one.min(other), one.max(other));
        let cuts = &mut self.lock().cuts;
        if is_cut {
            cuts.insert(pair)
        } else {
            cuts.remove(&pair)
        };
    }

    fn member(&self, node: Node) -> Option<Member> {
        self.lock().members.get(&node).cloned()
    }

    /// Both have to be members, of that incarnation, and not cut off.
    fn reach(&self, from: Peer, to: Peer) -> Option<Member> {
        let members = self.lock();
        let pair = (from.node.min(to.node), from.node.max(to.node));
        members.members.get(&from.node).filter(|member| member.peer == from)?;
        members.members.get(&to.node).filter(|member| member.peer == to && !members.cuts.contains(&pair)).cloned()
    }

    fn add(&self, me: Peer, inbox: &Arc<Inbox>) -> Result<(), RelayError> {
        let mut members = self.lock();
        if members.members.contains_key(&me.node) {
            return Err(RelayError::new(format_args!("the hub has a node {} already: take another name", me.node)));
        }
        let joined = Member { peer: me, inbox: inbox.clone() };
        for member in members.members.values() {
            // Under the lock, so that two who join at once both hear of each other before any
            // frame.
            member.inbox.put(Item::Up(me));
            inbox.put(Item::Up(member.peer));
        }
        members.members.insert(me.node, joined);
        Ok(())
    }

    fn remove(&self, me: Peer) {
        let mut members = self.lock();
        let Some(gone) = members.members.get(&me.node).filter(|member| member.peer == me).cloned() else { return };
        members.members.remove(&me.node);
        gone.inbox.close();
        for member in members.members.values() {
            member.inbox.put(Item::Down(me));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        // No code of a system runs under this lock, so a panic leaves nothing half-done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    fn put(&self, item: Item) -> bool {
        let mut queue = self.lock();
        let is_frame = matches!(item, Item::Frame(..));
        if queue.is_closed || (is_frame && queue.frames >= self.capacity) {
            return false;
        }
        queue.frames += usize::from(is_frame);
        queue.items.push_back(item);
        drop(queue);
        self.filled.notify_one();
        true
    }

    /// Drops the frames of a peer.
    fn forget(&self, peer: Peer) {
        let mut queue = self.lock();
        queue.items.retain(|item| !matches!(item, Item::Frame(from, _) if *from == peer));
        queue.frames = queue.items.iter().filter(|item| matches!(item, Item::Frame(..))).count();
    }

    fn take(&self) -> Option<Item> {
        let mut queue = self.lock();
        let item = queue.items.pop_front();
        queue.frames -= usize::from(matches!(item, Some(Item::Frame(..))));
        item
    }

    fn close(&self) {
        let mut queue = self.lock();
        queue.is_closed = true;
        queue.items.clear();
        queue.frames = 0;
        drop(queue);
        self.filled.notify_one();
    }

    fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The relay of one member of a [`Hub`]. The node leaves when its system is shut down or gone.
pub struct HubRelay {
    hub: Hub,
    node: Node,
    capacity: usize,
    me: Mutex<Option<Peer>>,
}

impl HubRelay {
    fn me(&self) -> Option<Peer> {
        *self.me.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn quit(&self) {
        if let Some(me) = self.me() {
            self.hub.remove(me);
        }
    }
}

impl Relay for HubRelay {
    fn node(&self) -> Node {
        self.node
    }

    fn start(&self, incoming: Incoming) -> Result<(), RelayError> {
        let me = incoming.me();
        let inbox = Arc::new(Inbox { queue: Mutex::default(), filled: Notify::new(), capacity: self.capacity });
        self.hub.add(me, &inbox)?;
        *self.me.lock().unwrap_or_else(PoisonError::into_inner) = Some(me);
        let runtime = incoming.runtime().clone();
        drop(task::Builder::new().name("hub").spawn_on(empty(inbox, incoming), &runtime));
        Ok(())
    }

    fn send(&self, to: Peer, frame: Bytes) -> Result<(), RelayError> {
        let me = self.me().ok_or_else(RelayError::lost)?;
        let member = self.hub.reach(me, to).ok_or_else(RelayError::lost)?;
        if member.inbox.put(Item::Frame(me, frame)) { Ok(()) } else { Err(RelayError::full()) }
    }

    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // What was sent is in the inboxes of the others already, before the news of the end.
        self.quit();
        Box::pin(std::future::ready(()))
    }
}

impl Drop for HubRelay {
    fn drop(&mut self) {
        self.quit();
    }
}

/// Hands over what comes, until the member has left.
async fn empty(inbox: Arc<Inbox>, incoming: Incoming) {
    loop {
        for _ in 0..BATCH {
            match inbox.take() {
                Some(Item::Up(peer)) => incoming.up(peer),
                Some(Item::Down(peer)) => incoming.down(peer),
                Some(Item::Frame(peer, frame)) => incoming.received(peer, frame),
                None if inbox.is_closed() => return,
                None => inbox.filled.notified().await,
            }
        }
        task::yield_now().await;
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("members", &self.lock().members.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for HubRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubRelay").field("node", &self.node).finish_non_exhaustive()
    }
}
