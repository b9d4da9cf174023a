//! What a library of actors has to be able to do for the workloads.
//!
//! Two kinds of process, the same in every library:
//! * an *idle* one waits for a message, and has never had one;
//! * a *node* does what its messages say ([`Order`]), and adds up how many tokens it was given.
//!
//! Both tell [`crate::tally`] when they have begun and when they have ended.

/// A message to a node.
pub(crate) enum Order<Node> {
    /// From now on it passes on to this one. Without one it is a sink.
    Next(Node),
    /// A sink: after so many tokens more it says so.
    Expect(u64),
    /// To be passed on, one less; who is given 0 says so. A sink adds it up.
    Token(u64),
    /// It sends tokens from so many down to 1.
    Burst(u64),
}

/// See the header of this file.
pub(crate) trait Peer: Sized + 'static {
    const NAME: &'static str;
    /// How an idle process is reached.
    type Idle: Send + 'static;
    /// How a node is reached.
    type Node: Clone + Send + 'static;

    /// Starts the library's own kind of runtime, which ends when this is dropped.
    fn start(workers: usize) -> Self;

    /// Starts idle processes, from inside of the runtime; they may not have begun when this
    /// returns.
    fn idle(&self, count: usize) -> Vec<Self::Idle>;

    /// Asks them to end, from inside of the runtime.
    fn end_idle(&self, idle: Vec<Self::Idle>);

    /// Starts nodes, as [`idle`](Self::idle). Those next to each other are near each other, where a
    /// library knows near and far.
    fn nodes(&self, count: usize) -> Vec<Self::Node>;

    /// Asks them to end.
    fn end_nodes(&self, nodes: Vec<Self::Node>);

    /// Sends, from inside of the runtime.
    fn tell(&self, orders: Vec<(Self::Node, Order<Self::Node>)>);
}
