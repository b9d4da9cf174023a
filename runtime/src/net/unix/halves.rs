//! The two halves of a connection within this machine.

use crate::net::surface::halves::halves;
use crate::net::surface::{reads, writes};
use crate::net::unix::SocketAddr;
use crate::net::unix::stream::UnixStream;

halves!(UnixStream, SocketAddr);
