//! The two halves that a [`UnixStream`] can be split into.

use crate::net::surface::halves::halves;
use crate::net::surface::{reads, writes};
use crate::net::unix::SocketAddr;
use crate::net::unix::stream::UnixStream;

halves!(UnixStream, SocketAddr);
