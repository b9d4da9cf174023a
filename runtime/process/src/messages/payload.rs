//! The content of messages and yields: any value within a node, bytes between nodes.

use std::any::Any;
use std::fmt;

use bytes::Bytes;

/// The content of a message, a yield or a result.
///
/// Within a node it can be any value; [`downcast`](Payload::downcast) returns that value. Only
/// [bytes](Payload::bytes) and [empty payloads](Payload::empty) can be sent to a process on another
/// node.
///
/// ```
/// use volt_process::Payload;
///
/// let payload = Payload::new(vec![1, 2, 3]);
/// assert!(payload.is::<Vec<i32>>());
/// assert_eq!(payload.downcast::<Vec<i32>>().unwrap(), [1, 2, 3]);
/// assert_eq!(Payload::bytes("hello").as_bytes().unwrap(), "hello".as_bytes());
/// ```
#[derive(Default)]
pub struct Payload(Inner);

#[derive(Default)]
enum Inner {
    #[default]
    Empty,
    Bytes(Bytes),
    Value(Box<dyn Any + Send>),
}

impl Payload {
    /// Creates a payload of any value. Allocates once, except for `()` and [`Bytes`], which become
    /// an [empty](Payload::empty) payload and a payload of [bytes](Payload::bytes).
    pub fn new<T: Any + Send>(value: T) -> Self {
        let mut value = Some(value);
        let any: &mut dyn Any = &mut value;
        if let Some(bytes) = any.downcast_mut::<Option<Bytes>>() {
            return bytes.take().map(Self::bytes).unwrap_or_default();
        }
        if any.is::<Option<()>>() {
            return Self::empty();
        }
        value.map(|value| Self(Inner::Value(Box::new(value)))).unwrap_or_default()
    }

    /// Creates a payload of bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self(Inner::Bytes(bytes.into()))
    }

    /// Creates a payload without content.
    pub fn empty() -> Self {
        Self(Inner::Empty)
    }

    /// Returns whether there is no content.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.0, Inner::Empty)
    }

    /// Returns whether the payload is a `T`.
    pub fn is<T: Any>(&self) -> bool {
        self.any().is::<T>()
    }

    /// Returns a reference to the value if it is a `T`.
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        self.any().downcast_ref()
    }

    /// Returns the bytes if the payload is bytes.
    pub fn as_bytes(&self) -> Option<&Bytes> {
        self.downcast_ref()
    }

    /// Returns the value if it is a `T`.
    ///
    /// # Errors
    /// Returns the payload unchanged if it is something else.
    pub fn downcast<T: Any>(self) -> Result<T, Payload> {
        match self.0 {
            Inner::Value(value) => value.downcast().map(|value| *value).map_err(|value| Payload(Inner::Value(value))),
            _ if !self.is::<T>() => Err(self),
            Inner::Empty => unbox(&mut Some(())),
            Inner::Bytes(bytes) => unbox(&mut Some(bytes)),
        }
    }

    fn any(&self) -> &dyn Any {
        match &self.0 {
            Inner::Empty => &(),
            Inner::Bytes(bytes) => bytes,
            Inner::Value(value) => value.as_ref(),
        }
    }
}

/// Takes the `T` out of an `Option<T>` whose type is erased.
fn unbox<T: Any>(value: &mut dyn Any) -> Result<T, Payload> {
    value.downcast_mut::<Option<T>>().and_then(Option::take).ok_or_else(Payload::empty)
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Empty => f.write_str("Payload(empty)"),
            Inner::Bytes(bytes) => write!(f, "Payload({} bytes)", bytes.len()),
            Inner::Value(_) => f.write_str("Payload(a value)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_returned_as_its_own_type_only() {
        assert_eq!(Payload::new(5_u8).downcast::<u8>().unwrap(), 5);
        Payload::new(()).downcast::<()>().unwrap();
        Payload::empty().downcast::<()>().unwrap();
        assert_eq!(Payload::new(Bytes::from_static(b"x")).as_bytes().unwrap(), "x");
        assert_eq!(Payload::bytes(vec![7]).downcast::<Bytes>().unwrap(), vec![7]);
        let refused = Payload::new(5_u8).downcast::<u16>().unwrap_err();
        assert_eq!(refused.downcast::<u8>().unwrap(), 5);
        let refused = Payload::bytes("abc").downcast::<()>().unwrap_err();
        assert_eq!(refused.as_bytes().unwrap(), "abc");
    }
}
