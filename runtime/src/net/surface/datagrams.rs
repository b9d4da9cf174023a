//! Methods that all datagram sockets share.

/// Defines sending to the peer (`send`) and receiving (`recv`, `recv_from`) of datagrams. Sending
/// to another address (`send_to`) differs between socket types, so each type defines it. The file
/// of the type defines the functions `receive` and `receive_from`.
macro_rules! datagrams {
    ($socket:ident, $addr:ty) => {
        impl $socket {
            /// Sends a datagram to the peer that the socket is connected to, and returns the number
            /// of bytes sent.
            ///
            /// Waits until there is room for the datagram.
            ///
            /// # Errors
            /// Returns an OS error `EDESTADDRREQ` (UDP) or `NotConnected` (Unix sockets) if the
            /// socket is not connected. Returns an error if the datagram is too long. Also returns
            /// an error if the underlying system call fails.
            ///
            /// # Cancel safety
            /// This method is cancel safe. If the future is dropped before it completes, the
            /// datagram was not sent.
            pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
                self.io.run(Direction::Write, |socket| socket.send(bytes)).await
            }

            /// Polls for sending a datagram as [`send`](Self::send) does. If several tasks poll for
            /// sending, only the task that polled last is woken.
            ///
            /// # Errors
            /// Returns the same errors as [`send`](Self::send).
            pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                self.io.poll_run(cx, Direction::Write, |socket| socket.send(bytes))
            }

            /// Tries to send a datagram to the peer without waiting.
            ///
            /// # Errors
            /// Returns `ErrorKind::WouldBlock` if there is no room. Otherwise returns the same
            /// errors as [`send`](Self::send).
            pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
                self.io.try_run(Direction::Write, |socket| socket.send(bytes))
            }

            /// Receives a datagram into `buffer`, and returns the number of bytes received.
            ///
            /// Waits until a datagram is available. If `buffer` is too short for the datagram, the
            /// excess bytes are discarded.
            ///
            /// # Errors
            /// Returns `ConnectionRefused` if the peer reported that no socket is bound to its
            /// address. Also returns an error if the underlying system call fails.
            ///
            /// # Cancel safety
            /// This method is cancel safe. If the future is dropped before it completes, no
            /// datagram was received.
            pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.io.run(Direction::Read, |socket| socket.recv(buffer)).await
            }

            /// Polls for a datagram as [`recv`](Self::recv) does. If several tasks poll for
            /// receiving, only the task that polled last is woken.
            ///
            /// # Errors
            /// Returns the same errors as [`recv`](Self::recv).
            pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                let receive = |socket: &_| fill_read_buf(buffer, |free| receive_into(socket, free));
                self.io.poll_run(cx, Direction::Read, receive).map_ok(drop)
            }

            /// Tries to receive a datagram without waiting.
            ///
            /// # Errors
            /// Returns `ErrorKind::WouldBlock` if no datagram is available. Otherwise returns the
            /// same errors as [`recv`](Self::recv).
            pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.io.try_run(Direction::Read, |socket| socket.recv(buffer))
            }

            /// Receives a datagram into the free part of `buffer`, as [`recv`](Self::recv) does.
            ///
            /// # Errors
            /// Returns the same errors as [`recv`](Self::recv).
            ///
            /// # Cancel safety
            /// The same as for [`recv`](Self::recv).
            pub async fn recv_buf<B: BufMut>(&self, buffer: &mut B) -> io::Result<usize> {
                let receive = |socket: &_| fill_buf_mut(buffer, |free| receive_into(socket, free));
                Ok(self.io.run(Direction::Read, receive).await?.0)
            }

            /// Tries to receive a datagram as [`recv_buf`](Self::recv_buf) does, without waiting.
            ///
            /// # Errors
            /// Returns the same errors as [`try_recv`](Self::try_recv).
            pub fn try_recv_buf<B: BufMut>(&self, buffer: &mut B) -> io::Result<usize> {
                let receive = |socket: &_| fill_buf_mut(buffer, |free| receive_into(socket, free));
                Ok(self.io.try_run(Direction::Read, receive)?.0)
            }

            /// Receives a datagram as [`recv`](Self::recv) does, and also returns the sender's
            /// address.
            ///
            /// # Errors
            /// Returns the same errors as [`recv`](Self::recv).
            ///
            /// # Cancel safety
            /// The same as for [`recv`](Self::recv).
            pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, $addr)> {
                self.io.run(Direction::Read, |socket| receive_from(socket, buffer)).await
            }

            /// Polls for a datagram as [`recv_from`](Self::recv_from) does. If several tasks poll
            /// for receiving, only the task that polled last is woken.
            ///
            /// # Errors
            /// Returns the same errors as [`recv`](Self::recv).
            pub fn poll_recv_from(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<$addr>> {
                let receive = |socket: &_| fill_read_buf(buffer, |free| receive(socket, free, RecvFlags::empty()));
                self.io.poll_run(cx, Direction::Read, receive).map_ok(|(_, from)| from)
            }

            /// Tries to receive a datagram as [`recv_from`](Self::recv_from) does, without waiting.
            ///
            /// # Errors
            /// Returns the same errors as [`try_recv`](Self::try_recv).
            pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, $addr)> {
                self.io.try_run(Direction::Read, |socket| receive_from(socket, buffer))
            }

            /// Receives a datagram into the free part of `buffer`, as
            /// [`recv_from`](Self::recv_from) does.
            ///
            /// # Errors
            /// Returns the same errors as [`recv`](Self::recv).
            ///
            /// # Cancel safety
            /// The same as for [`recv`](Self::recv).
            pub async fn recv_buf_from<B: BufMut>(&self, buffer: &mut B) -> io::Result<(usize, $addr)> {
                let receive = |socket: &_| fill_buf_mut(buffer, |free| receive(socket, free, RecvFlags::empty()));
                self.io.run(Direction::Read, receive).await
            }

            /// Tries to receive a datagram as [`recv_buf_from`](Self::recv_buf_from) does, without
            /// waiting.
            ///
            /// # Errors
            /// Returns the same errors as [`try_recv`](Self::try_recv).
            pub fn try_recv_buf_from<B: BufMut>(&self, buffer: &mut B) -> io::Result<(usize, $addr)> {
                let receive = |socket: &_| fill_buf_mut(buffer, |free| receive(socket, free, RecvFlags::empty()));
                self.io.try_run(Direction::Read, receive)
            }
        }
    };
}

pub(in crate::net) use datagrams;
