//! The methods that the bounded and the unbounded receiver share.

/// Implements the methods that both receivers share.
macro_rules! receive {
    ($name:ident) => {
        impl<T> $name<T> {
            /// Receives the next value, waiting until there is one.
            ///
            /// Returns `None` if no value is left and all senders are dropped, or the channel was
            /// closed.
            ///
            /// # Cancel safety
            /// Cancel safe. If the future is dropped before it completes, no value is received.
            #[track_caller]
            pub fn recv(&mut self) -> impl Future<Output = Option<T>> {
                let mut pending = Pending::new(Awaits::Message, Location::caller());
                // Not `Unpin`, as in Tokio.
                async move { poll_fn(|cx| self.poll_recv_with(&mut pending, cx)).await }
            }

            /// Waits for at least one value, appends up to `limit` values to `buffer`, and returns
            /// how many.
            ///
            /// Returns 0 where [`recv`](Self::recv) returns `None`, and if `limit` is 0.
            ///
            /// # Cancel safety
            /// Cancel safe. If the future is dropped before it completes, no value is received.
            #[track_caller]
            pub fn recv_many(&mut self, buffer: &mut Vec<T>, limit: usize) -> impl Future<Output = usize> {
                let mut pending = Pending::new(Awaits::Message, Location::caller());
                async move { poll_fn(|cx| self.poll_recv_many_with(&mut pending, cx, buffer, limit)).await }
            }

            /// Returns the next value if there is one, without waiting.
            ///
            /// # Errors
            /// Returns an error if there is no value yet, or the channel is closed and no value is
            /// left.
            #[track_caller]
            pub fn try_recv(&mut self) -> Result<T, error::TryRecvError> {
                self.note_receiver(false, Location::caller());
                self.0.try_recv()
            }

            /// Receives the next value like [`recv`](Self::recv), blocking the current thread.
            ///
            /// # Panics
            /// Panics in a task and in [`Runtime::block_on`](crate::Runtime::block_on): await
            /// [`recv`](Self::recv) there.
            #[track_caller]
            pub fn blocking_recv(&mut self) -> Option<T> {
                expect_may_block(concat!("mpsc::", stringify!($name), "::recv"));
                self.note_receiver(true, Location::caller());
                self.0.blocking_recv()
            }

            /// Receives values like [`recv_many`](Self::recv_many), blocking the current thread.
            ///
            /// # Panics
            /// Panics in a task and in [`Runtime::block_on`](crate::Runtime::block_on): await
            /// [`recv_many`](Self::recv_many) there.
            #[track_caller]
            pub fn blocking_recv_many(&mut self, buffer: &mut Vec<T>, limit: usize) -> usize {
                expect_may_block(concat!("mpsc::", stringify!($name), "::recv_many"));
                self.note_receiver(true, Location::caller());
                self.0.blocking_recv_many(buffer, limit)
            }

            /// Polls for the next value; the poll function of [`recv`](Self::recv).
            #[track_caller]
            pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
                kept(Awaits::Message, Location::caller(), |pending| self.poll_recv_with(pending, cx))
            }

            fn poll_recv_with(&mut self, pending: &mut Pending, cx: &mut Context<'_>) -> Poll<Option<T>> {
                let polled = poll_pending(pending, cx, |cx| self.0.poll_recv(cx));
                self.note_receiver(polled.is_pending(), pending.at());
                if polled.is_pending() {
                    resources::note(|| Some(self.awaited()));
                }
                polled
            }

            /// Polls for values; the poll function of [`recv_many`](Self::recv_many).
            #[track_caller]
            pub fn poll_recv_many(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<T>, limit: usize) -> Poll<usize> {
                kept(Awaits::Message, Location::caller(), |pending| {
                    self.poll_recv_many_with(pending, cx, buffer, limit)
                })
            }

            fn poll_recv_many_with(
                &mut self,
                pending: &mut Pending,
                cx: &mut Context<'_>,
                buffer: &mut Vec<T>,
                limit: usize,
            ) -> Poll<usize> {
                let polled = poll_pending(pending, cx, |cx| self.0.poll_recv_many(cx, buffer, limit));
                self.note_receiver(polled.is_pending(), pending.at());
                if polled.is_pending() {
                    resources::note(|| Some(self.awaited()));
                }
                polled
            }

            fn awaited(&self) -> Awaited {
                let (senders, messages) = (Some(self.sender_strong_count() as u64), Some(self.len() as u64));
                let numbers = Resource { senders, messages, capacity: self.bound(), ..Resource::default() };
                Awaited::new(Key::of(self), "mpsc", numbers)
            }

            /// Returns the number of senders, not counting weak ones.
            pub fn sender_strong_count(&self) -> usize {
                self.0.sender_strong_count()
            }

            /// Returns the number of weak senders.
            pub fn sender_weak_count(&self) -> usize {
                self.0.sender_weak_count()
            }

            /// Closes the channel: no more values can be sent. Values that were sent before can
            /// still be received.
            pub fn close(&mut self) {
                self.0.close();
            }

            /// Returns `true` if all senders are dropped, or the channel was closed.
            pub fn is_closed(&self) -> bool {
                self.0.is_closed()
            }

            /// Returns `true` if the channel is empty.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// Returns the number of values in the channel.
            pub fn len(&self) -> usize {
                self.0.len()
            }
        }
    };
}
pub(super) use receive;
