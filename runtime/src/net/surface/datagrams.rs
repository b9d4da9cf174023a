//! Datagrams.

/// Datagrams, of a socket that has a peer (`send`, `recv`) or not (`recv_from`). Sending to an
/// address is each socket's own.
macro_rules! datagrams {
    ($socket:ident, $addr:ty) => {
        impl $socket {
            /// Sends a datagram to the peer that the socket was connected to, waiting for room; how
            /// many bytes went.
            ///
            /// # Errors
            /// What the system says: without a peer, `DestinationAddressRequired` or
            /// `NotConnected`; too long a datagram is an error too.
            ///
            /// # Cancel safety
            /// If it did not return, nothing was sent.
            pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
                self.io.run(Direction::Write, |socket| socket.send(bytes)).await
            }

            /// Polls as [`send`](Self::send). Of several tasks that poll to send, the last one is
            /// woken.
            ///
            /// # Errors
            /// As [`send`](Self::send).
            pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                self.io.poll_run(cx, Direction::Write, |socket| socket.send(bytes))
            }

            /// As [`send`](Self::send), without waiting.
            ///
            /// # Errors
            /// `ErrorKind::WouldBlock` if there is no room; as [`send`](Self::send).
            pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
                self.io.try_run(Direction::Write, |socket| socket.send(bytes))
            }

            /// Waits for a datagram and puts it into `buffer`; how many bytes. What has no room
            /// there is lost.
            ///
            /// # Errors
            /// What the system says; `ConnectionRefused` if the peer answered that nobody is there.
            ///
            /// # Cancel safety
            /// If it did not return, no datagram was taken.
            pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.io.run(Direction::Read, |socket| socket.recv(buffer)).await
            }

            /// Polls as [`recv`](Self::recv). Of several tasks that poll to receive, the last one
            /// is woken.
            ///
            /// # Errors
            /// As [`recv`](Self::recv).
            pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                let receive = |socket: &_| fill_read_buf(buffer, |free| receive(socket, free, RecvFlags::empty()));
                self.io.poll_run(cx, Direction::Read, receive).map_ok(drop)
            }

            /// As [`recv`](Self::recv), without waiting.
            ///
            /// # Errors
            /// `ErrorKind::WouldBlock` if nothing is there; as [`recv`](Self::recv).
            pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.io.try_run(Direction::Read, |socket| socket.recv(buffer))
            }

            /// As [`recv`](Self::recv), into what is free in `buffer`.
            ///
            /// # Errors
            /// As [`recv`](Self::recv).
            ///
            /// # Cancel safety
            /// As [`recv`](Self::recv).
            pub async fn recv_buf<B: BufMut>(&self, buffer: &mut B) -> io::Result<usize> {
                let receive = |socket: &_| fill_buf_mut(buffer, |free| receive(socket, free, RecvFlags::empty()));
                Ok(self.io.run(Direction::Read, receive).await?.0)
            }

            /// As [`recv_buf`](Self::recv_buf), without waiting.
            ///
            /// # Errors
            /// As [`try_recv`](Self::try_recv).
            pub fn try_recv_buf<B: BufMut>(&self, buffer: &mut B) -> io::Result<usize> {
                let receive = |socket: &_| fill_buf_mut(buffer, |free| receive(socket, free, RecvFlags::empty()));
                Ok(self.io.try_run(Direction::Read, receive)?.0)
            }

            /// As [`recv`](Self::recv), with who sent it.
            ///
            /// # Errors
            /// As [`recv`](Self::recv).
            ///
            /// # Cancel safety
            /// As [`recv`](Self::recv).
            pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, $addr)> {
                self.io.run(Direction::Read, |socket| socket.recv_from(buffer)).await
            }

            /// Polls as [`recv_from`](Self::recv_from). Of several tasks that poll to receive, the
            /// last one is woken.
            ///
            /// # Errors
            /// As [`recv`](Self::recv).
            pub fn poll_recv_from(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<$addr>> {
                let receive = |socket: &_| fill_read_buf(buffer, |free| receive(socket, free, RecvFlags::empty()));
                self.io.poll_run(cx, Direction::Read, receive).map_ok(|(_, from)| from)
            }

            /// As [`recv_from`](Self::recv_from), without waiting.
            ///
            /// # Errors
            /// As [`try_recv`](Self::try_recv).
            pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, $addr)> {
                self.io.try_run(Direction::Read, |socket| socket.recv_from(buffer))
            }

            /// As [`recv_from`](Self::recv_from), into what is free in `buffer`.
            ///
            /// # Errors
            /// As [`recv`](Self::recv).
            ///
            /// # Cancel safety
            /// As [`recv`](Self::recv).
            pub async fn recv_buf_from<B: BufMut>(&self, buffer: &mut B) -> io::Result<(usize, $addr)> {
                let receive = |socket: &_| fill_buf_mut(buffer, |free| receive(socket, free, RecvFlags::empty()));
                self.io.run(Direction::Read, receive).await
            }

            /// As [`recv_buf_from`](Self::recv_buf_from), without waiting.
            ///
            /// # Errors
            /// As [`try_recv`](Self::try_recv).
            pub fn try_recv_buf_from<B: BufMut>(&self, buffer: &mut B) -> io::Result<(usize, $addr)> {
                let receive = |socket: &_| fill_buf_mut(buffer, |free| receive(socket, free, RecvFlags::empty()));
                self.io.try_run(Direction::Read, receive)
            }
        }
    };
}

pub(in crate::net) use datagrams;
