//! Reads messages that are MessagePack. `wire` decodes all messages of the control socket with it.
//!
//! It accepts what `rmp_serde` accepts: structs as maps with named fields or as lists, and variants
//! by their names. That crate needs three others, two of which have build scripts, and all code for
//! messages is part of each program that links Volt, and of its build time.
//!
//! # Shape
//!
//! A value begins with a marker, which is its type and, for short values, also its length or the
//! value itself. Numbers are big-endian. Lists, maps and variants contain other values.
//!
//! # Invariants
//!
//! *Bounded*: the bytes may come from an untrusted sender. A length that the remaining bytes cannot
//! have is an error before anything is allocated, and values are nested at most `depth` deep, since
//! each level needs stack space. *Borrowed*: strings and bytes are not copied here.
//!
//! Source: the MessagePack specification, "Formats"; serde.rs, "Implementing a Deserializer".

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer as _, Visitor};
use serde::forward_to_deserialize_any;

/// The error of bytes that are not a valid message.
#[derive(Debug)]
pub struct UnpackError(Box<str>);

impl fmt::Display for UnpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnpackError {}

impl de::Error for UnpackError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string().into())
    }
}

fn invalid<T>(message: &str) -> Result<T, UnpackError> {
    Err(UnpackError(message.into()))
}

/// Reads values one after the other.
pub(super) struct Unpacker<'de> {
    rest: &'de [u8],
    /// How many more levels of lists, maps and variants are accepted.
    depth: usize,
}

/// A marker, with the number or the length that follows it.
enum Head {
    Nil,
    Bool(bool),
    // With their widths: serde accepts the number of a field in some of them only.
    Byte(u8),
    Short(u16),
    Word(u32),
    Unsigned(u64),
    Signed(i64),
    Float(f32),
    Double(f64),
    Text(usize),
    Bytes(usize),
    List(usize),
    Map(usize),
}

impl<'de> Unpacker<'de> {
    pub(super) fn new(bytes: &'de [u8], depth: usize) -> Self {
        Self { rest: bytes, depth }
    }

    fn take(&mut self, len: usize) -> Result<&'de [u8], UnpackError> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else { return invalid("it ends inside a value") };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], UnpackError> {
        Ok(self.take(N)?.try_into().expect("that many bytes were taken"))
    }

    /// Reads a number of `bytes` bytes without a sign.
    fn unsigned(&mut self, bytes: usize) -> Result<u64, UnpackError> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Reads a length. Each of its elements has at least one byte.
    fn len(&mut self, bytes: usize) -> Result<usize, UnpackError> {
        let len = self.unsigned(bytes)?;
        match usize::try_from(len) {
            Ok(len) if len <= self.rest.len() => Ok(len),
            _ => invalid("a length exceeds the message"),
        }
    }

    fn head(&mut self) -> Result<Head, UnpackError> {
        let [marker] = self.array()?;
        Ok(match marker {
            0x00..=0x7f => Head::Byte(marker),
            0x80..=0x8f => Head::Map((marker & 0x0f).into()),
            0x90..=0x9f => Head::List((marker & 0x0f).into()),
            0xa0..=0xbf => Head::Text((marker & 0x1f).into()),
            0xc0 => Head::Nil,
            0xc2 | 0xc3 => Head::Bool(marker == 0xc3),
            0xc4..=0xc6 => Head::Bytes(self.len(1 << (marker - 0xc4))?),
            0xca => Head::Float(f32::from_be_bytes(self.array()?)),
            0xcb => Head::Double(f64::from_be_bytes(self.array()?)),
            0xcc => Head::Byte(u8::from_be_bytes(self.array()?)),
            0xcd => Head::Short(u16::from_be_bytes(self.array()?)),
            0xce => Head::Word(u32::from_be_bytes(self.array()?)),
            0xcf => Head::Unsigned(u64::from_be_bytes(self.array()?)),
            0xd0 => Head::Signed(i8::from_be_bytes(self.array()?).into()),
            0xd1 => Head::Signed(i16::from_be_bytes(self.array()?).into()),
            0xd2 => Head::Signed(i32::from_be_bytes(self.array()?).into()),
            0xd3 => Head::Signed(i64::from_be_bytes(self.array()?)),
            0xd9..=0xdb => Head::Text(self.len(1 << (marker - 0xd9))?),
            0xdc | 0xdd => Head::List(self.len(2 << (marker - 0xdc))?),
            0xde | 0xdf => Head::Map(self.len(2 << (marker - 0xde))?),
            0xe0..=0xff => Head::Signed((marker as i8).into()),
            0xc1 | 0xc7..=0xc9 | 0xd4..=0xd8 => return invalid("it has a value of an unknown type"),
        })
    }

    /// Reads what is inside a list, map or variant.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, UnpackError>) -> Result<T, UnpackError> {
        let Some(depth) = self.depth.checked_sub(1) else { return invalid("it is nested too deeply") };
        let before = std::mem::replace(&mut self.depth, depth);
        let value = read(self);
        self.depth = before;
        value
    }

    /// Reads the `len` elements of a list, or entries of a map. All must be read.
    fn elements<T>(
        &mut self,
        len: usize,
        read: impl FnOnce(&mut Elements<'_, 'de>) -> Result<T, UnpackError>,
    ) -> Result<T, UnpackError> {
        self.nested(|unpacker| {
            let mut elements = Elements { unpacker, left: len };
            let value = read(&mut elements)?;
            if elements.left > 0 { invalid("a list or map has too many elements") } else { Ok(value) }
        })
    }
}

impl<'de> de::Deserializer<'de> for &mut Unpacker<'de> {
    type Error = UnpackError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, UnpackError> {
        match self.head()? {
            Head::Nil => visitor.visit_unit(),
            Head::Bool(value) => visitor.visit_bool(value),
            Head::Byte(value) => visitor.visit_u8(value),
            Head::Short(value) => visitor.visit_u16(value),
            Head::Word(value) => visitor.visit_u32(value),
            Head::Unsigned(value) => visitor.visit_u64(value),
            Head::Signed(value) => visitor.visit_i64(value),
            Head::Float(value) => visitor.visit_f32(value),
            Head::Double(value) => visitor.visit_f64(value),
            Head::Text(len) => {
                let bytes = self.take(len)?;
                match std::str::from_utf8(bytes) {
                    Ok(text) => visitor.visit_borrowed_str(text),
                    // Accepted where the value is ignored.
                    Err(_) => visitor.visit_borrowed_bytes(bytes),
                }
            }
            Head::Bytes(len) => visitor.visit_borrowed_bytes(self.take(len)?),
            Head::List(len) => self.elements(len, |elements| visitor.visit_seq(elements)),
            Head::Map(len) => self.elements(len, |elements| visitor.visit_map(elements)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, UnpackError> {
        match self.rest.split_first() {
            Some((0xc0, rest)) => {
                self.rest = rest;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &str, visitor: V) -> Result<V::Value, UnpackError> {
        visitor.visit_newtype_struct(self)
    }

    /// Accepts nil and an empty list.
    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &str, visitor: V) -> Result<V::Value, UnpackError> {
        match self.head()? {
            Head::Nil | Head::List(0) => visitor.visit_unit(),
            _ => invalid("it has no unit where one is required"),
        }
    }

    /// A variant is its name, or a map whose one entry has its name and its content.
    fn deserialize_enum<V: Visitor<'de>>(self, _: &str, _: &[&str], visitor: V) -> Result<V::Value, UnpackError> {
        if !matches!(self.rest.first(), Some(0x80..=0x8f | 0xde | 0xdf)) {
            return visitor.visit_enum(Variant { unpacker: self, has_content: false });
        }
        match self.head()? {
            Head::Map(1) => self.nested(|unpacker| visitor.visit_enum(Variant { unpacker, has_content: true })),
            _ => invalid("a variant is not a map with one entry"),
        }
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

/// The elements of a list or the entries of a map.
struct Elements<'a, 'de> {
    unpacker: &'a mut Unpacker<'de>,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for &mut Elements<'_, 'de> {
    type Error = UnpackError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, UnpackError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.unpacker).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> de::MapAccess<'de> for &mut Elements<'_, 'de> {
    type Error = UnpackError;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, UnpackError> {
        de::SeqAccess::next_element_seed(self, seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, UnpackError> {
        seed.deserialize(&mut *self.unpacker)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

struct Variant<'a, 'de> {
    unpacker: &'a mut Unpacker<'de>,
    has_content: bool,
}

impl<'de> Variant<'_, 'de> {
    fn content(self) -> Result<impl de::Deserializer<'de, Error = UnpackError>, UnpackError> {
        if self.has_content { Ok(self.unpacker) } else { invalid("a variant has no content") }
    }
}

impl<'de> de::EnumAccess<'de> for Variant<'_, 'de> {
    type Error = UnpackError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), UnpackError> {
        Ok((seed.deserialize(&mut *self.unpacker)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, 'de> {
    type Error = UnpackError;

    fn unit_variant(self) -> Result<(), UnpackError> {
        if self.has_content { de::Deserialize::deserialize(self.unpacker) } else { Ok(()) }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, UnpackError> {
        seed.deserialize(self.content()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, UnpackError> {
        self.content()?.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, UnpackError> {
        self.content()?.deserialize_struct("", fields, visitor)
    }
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use serde::{Deserialize, Serialize, de::DeserializeOwned};

    use super::*;
    use crate::wire::pack::Packer;
    use crate::wire::unpack;

    /// Reads what was written, and that of rmp-serde as structs without names.
    fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
        let mut packed = Vec::new();
        value.serialize(Packer(&mut packed)).unwrap();
        assert_eq!(&unpack::<T>(&packed).unwrap(), value, "{packed:x?}");
        for end in 0..packed.len().min(100) {
            assert!(unpack::<T>(&packed[..end]).is_err(), "{value:?} is read from {end} bytes of {packed:x?}");
        }
        assert_eq!(&unpack::<T>(&rmp_serde::to_vec(value).unwrap()).unwrap(), value);
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Variant {
        Unit,
        Newtype(Option<u8>),
        Tuple(i8, char),
        Struct { text: String },
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Unit;
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Newtype(f32);
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Pair(bool, f64);

    #[test]
    fn every_form_of_data_is_read_as_it_was_written() {
        for bits in 0..=64 {
            let limit = 1_u64.checked_shl(bits).unwrap_or(0);
            for value in [limit.wrapping_sub(1), limit, limit.wrapping_add(1)] {
                check(&(value, value as i64, (value as i64).wrapping_neg(), value as i32, value as i16, value as i8));
            }
        }
        for len in [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536] {
            check(&"x".repeat(len));
            check(&vec![7_u8; len]);
            check(&(0..len).map(|key| (key, ())).collect::<BTreeMap<_, _>>());
        }
        check(&vec![Variant::Unit, Variant::Newtype(None), Variant::Newtype(Some(200)), Variant::Tuple(-33, 'é')]);
        check(&(Variant::Struct { text: "x".into() }, Unit, Newtype(1.5), Pair(true, -0.25), Pair(false, 7.0)));
    }

    #[test]
    fn a_list_with_too_many_elements_is_an_error() {
        assert_eq!(unpack::<(u8, u8)>(b"\x92\x01\x02").unwrap(), (1, 2));
        let error = unpack::<(u8, u8)>(b"\x93\x01\x02\x03").unwrap_err().to_string();
        assert!(error.contains("too many elements"), "{error}");
    }

    #[test]
    fn a_length_beyond_the_message_is_an_error() {
        for bytes in [&b"\xdd\xff\xff\xff\xff\x01"[..], b"\xdf\x00\x00\x00\x07\x01", b"\xdb\x00\x01\x00\x00x"] {
            let error = unpack::<de::IgnoredAny>(bytes).unwrap_err().to_string();
            assert!(error.contains("a length exceeds the message"), "{error}");
        }
    }
}
