//! The interface that an actor library must provide for the workloads.
//!
//! Every library has the same two kinds of process:
//! * an *idle* process waits for a message, and has never received one;
//! * a *node* does what its messages request ([`Order`]), and counts the tokens that it receives.
//!
//! Both report to [`crate::tally`] when they begin and when they end.

/// A message to a node.
pub(crate) enum Order<Node> {
    /// Pass tokens on to this node from now on. A node without a next node is a sink.
    Next(Node),
    /// To a sink: report when this many more tokens have arrived.
    Expect(u64),
    /// Pass the token on, reduced by one. The node that receives 0 reports it. A sink adds the
    /// token up.
    Token(u64),
    /// Send tokens from this number down to 1.
    Burst(u64),
}

/// An actor library. See the header of this file.
pub(crate) trait Peer: Sized + 'static {
    const NAME: &'static str;
    /// The address of an idle process.
    type Idle: Send + 'static;
    /// The address of a node.
    type Node: Clone + Send + 'static;

    /// Starts the library's usual runtime, which stops when this is dropped.
    fn start(workers: usize) -> Self;

    /// Starts idle processes, from inside the runtime. They may not have begun when this returns.
    fn idle(&self, count: usize) -> Vec<Self::Idle>;

    /// Requests the idle processes to end, from inside the runtime.
    fn end_idle(&self, idle: Vec<Self::Idle>);

    /// Starts nodes, like [`idle`](Self::idle). Neighbours are placed close to each other, if the
    /// library supports it.
    fn nodes(&self, count: usize) -> Vec<Self::Node>;

    /// Requests the nodes to end.
    fn end_nodes(&self, nodes: Vec<Self::Node>);

    /// Sends orders, from inside the runtime.
    fn send_orders(&self, orders: Vec<(Self::Node, Order<Self::Node>)>);
}
