//! Writes messages as MessagePack, with structs as maps with named fields. `wire` encodes all
//! messages of the control socket with it.
//!
//! The bytes are those of `rmp_serde::encode::write_named`. Its serializer supports more forms and
//! compiles to twice the code for the same data: every list is also compiled as a list of bytes.
//! All code for messages is part of each program that links Volt, and of its build time.

use std::fmt;

use serde::Serialize;
use serde::ser;

/// An error of a message's own `Serialize`; writing to memory cannot fail.
#[derive(Debug)]
pub(crate) struct PackError(Box<str>);

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PackError {}

impl ser::Error for PackError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string().into())
    }
}

type Packed = Result<(), PackError>;

/// Appends values to a buffer.
pub(crate) struct Packer<'a>(pub(crate) &'a mut Vec<u8>);

impl Packer<'_> {
    /// Returns the packer of the next value in a list or map.
    fn next(&mut self) -> Packer<'_> {
        Packer(self.0)
    }

    fn put(self, marker: u8, bytes: &[u8]) -> Packed {
        self.0.push(marker);
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn put_unsigned(self, value: u64) -> Packed {
        match value {
            0..=0x7f => self.put(value as u8, &[]),
            0x80..=0xff => self.put(0xcc, &[value as u8]),
            0x100..=0xffff => self.put(0xcd, &(value as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.put(0xce, &(value as u32).to_be_bytes()),
            _ => self.put(0xcf, &value.to_be_bytes()),
        }
    }

    fn put_signed(self, value: i64) -> Packed {
        if let Ok(value) = u64::try_from(value) {
            self.put_unsigned(value)
        } else if value >= -32 {
            self.put(value as u8, &[])
        } else if let Ok(value) = i8::try_from(value) {
            self.put(0xd0, &value.to_be_bytes())
        } else if let Ok(value) = i16::try_from(value) {
            self.put(0xd1, &value.to_be_bytes())
        } else if let Ok(value) = i32::try_from(value) {
            self.put(0xd2, &value.to_be_bytes())
        } else {
            self.put(0xd3, &value.to_be_bytes())
        }
    }

    /// Writes the length of a string, list or map. `markers` are those for a length of 16 bits and
    /// of 32; lengths up to `short` are part of the marker `fixed`.
    fn put_len(self, len: usize, fixed: u8, short: usize, markers: [u8; 2]) -> Packed {
        match u16::try_from(len) {
            _ if len <= short => self.put(fixed | len as u8, &[]),
            Ok(len) => self.put(markers[0], &len.to_be_bytes()),
            // Frames are much smaller than 4 GiB.
            Err(_) => self.put(markers[1], &(len as u32).to_be_bytes()),
        }
    }

    fn put_str(mut self, text: &str) -> Packed {
        match text.len() {
            len @ 32..=255 => self.next().put(0xd9, &[len as u8])?,
            len => self.next().put_len(len, 0xa0, 31, [0xda, 0xdb])?,
        }
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn put_list(mut self, len: usize) -> Result<Self, PackError> {
        self.next().put_len(len, 0x90, 15, [0xdc, 0xdd])?;
        Ok(self)
    }

    fn put_map(mut self, len: usize) -> Result<Self, PackError> {
        self.next().put_len(len, 0x80, 15, [0xde, 0xdf])?;
        Ok(self)
    }

    /// Begins a variant with content: a map with one entry.
    fn put_variant(self, name: &str) -> Result<Self, PackError> {
        let mut map = self.put_map(1)?;
        map.next().put_str(name)?;
        Ok(map)
    }
}

fn known(len: Option<usize>) -> Result<usize, PackError> {
    len.ok_or_else(|| ser::Error::custom("a list of unknown length"))
}

impl ser::Serializer for Packer<'_> {
    type Ok = ();
    type Error = PackError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    fn serialize_bool(self, value: bool) -> Packed {
        self.put(0xc2 + u8::from(value), &[])
    }

    fn serialize_i8(self, value: i8) -> Packed {
        self.put_signed(value.into())
    }

    fn serialize_i16(self, value: i16) -> Packed {
        self.put_signed(value.into())
    }

    fn serialize_i32(self, value: i32) -> Packed {
        self.put_signed(value.into())
    }

    fn serialize_i64(self, value: i64) -> Packed {
        self.put_signed(value)
    }

    fn serialize_u8(self, value: u8) -> Packed {
        self.put_unsigned(value.into())
    }

    fn serialize_u16(self, value: u16) -> Packed {
        self.put_unsigned(value.into())
    }

    fn serialize_u32(self, value: u32) -> Packed {
        self.put_unsigned(value.into())
    }

    fn serialize_u64(self, value: u64) -> Packed {
        self.put_unsigned(value)
    }

    fn serialize_f32(self, value: f32) -> Packed {
        self.put(0xca, &value.to_be_bytes())
    }

    fn serialize_f64(self, value: f64) -> Packed {
        self.put(0xcb, &value.to_be_bytes())
    }

    fn serialize_char(self, value: char) -> Packed {
        self.put_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Packed {
        self.put_str(value)
    }

    fn serialize_bytes(mut self, value: &[u8]) -> Packed {
        match value.len() {
            len @ 0..=255 => self.next().put(0xc4, &[len as u8])?,
            // No length is part of the marker.
            len => self.next().put_len(len, 0, 0, [0xc5, 0xc6])?,
        }
        self.0.extend_from_slice(value);
        Ok(())
    }

    fn serialize_none(self) -> Packed {
        self.put(0xc0, &[])
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Packed {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Packed {
        self.put(0xc0, &[])
    }

    fn serialize_unit_struct(self, _: &'static str) -> Packed {
        self.put_list(0).map(drop)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Packed {
        self.put_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Packed {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Packed {
        value.serialize(self.put_variant(variant)?)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self, PackError> {
        self.put_list(known(len)?)
    }

    fn serialize_tuple(self, len: usize) -> Result<Self, PackError> {
        self.put_list(len)
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Self, PackError> {
        self.put_list(len)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self, PackError> {
        self.put_variant(variant)?.put_list(len)
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self, PackError> {
        self.put_map(known(len)?)
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Self, PackError> {
        self.put_map(len)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self, PackError> {
        self.put_variant(variant)?.put_map(len)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Implements the traits for lists and maps, whose values are written one after the other.
macro_rules! impl_in_order {
    ($($kind:ident $method:ident $(($key:ident))?;)*) => {$(
        impl ser::$kind for Packer<'_> {
            type Ok = ();
            type Error = PackError;

            fn $method<T: Serialize + ?Sized>(&mut self, $($key: &'static str,)? value: &T) -> Packed {
                $(self.next().put_str($key)?;)?
                value.serialize(self.next())
            }

            fn end(self) -> Packed {
                Ok(())
            }
        }
    )*};
}

impl_in_order! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
    SerializeStruct serialize_field (key);
    SerializeStructVariant serialize_field (key);
}

impl ser::SerializeMap for Packer<'_> {
    type Ok = ();
    type Error = PackError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Packed {
        key.serialize(self.next())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Packed {
        value.serialize(self.next())
    }

    fn end(self) -> Packed {
        Ok(())
    }
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::*;
    use crate::wire::hostile;

    fn check(value: &(impl Serialize + fmt::Debug)) {
        let (mut packed, mut expected) = (Vec::new(), Vec::new());
        value.serialize(Packer(&mut packed)).unwrap();
        rmp_serde::encode::write_named(&mut expected, value).unwrap();
        assert_eq!(packed, expected, "{value:?}");
    }

    #[test]
    fn messages_are_packed_as_by_rmp_serde() {
        hostile::replies().iter().for_each(check);
        hostile::requests().iter().for_each(check);
    }

    #[test]
    fn every_form_of_data_is_packed_as_by_rmp_serde() {
        #[derive(Debug, Serialize)]
        enum Variant {
            Unit,
            Newtype(Option<u8>),
            Tuple(i8, char),
            Struct { text: String },
        }
        #[derive(Debug, Serialize)]
        struct Unit;
        #[derive(Debug, Serialize)]
        struct Newtype(f32);
        #[derive(Debug, Serialize)]
        struct Pair(bool, f64);

        for bits in 0..=64 {
            let limit = 1_u64.checked_shl(bits).unwrap_or(0);
            for value in [limit.wrapping_sub(1), limit, limit.wrapping_add(1)] {
                check(&(value, value as i64, (value as i64).wrapping_neg(), value as i32, value as i16, value as u16));
            }
        }
        for len in [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536] {
            check(&"x".repeat(len));
            check(&vec![7_u8; len]);
            check(&(0..len).map(|key| (key, ())).collect::<BTreeMap<_, _>>());
        }
        check(&[Variant::Unit, Variant::Newtype(None), Variant::Newtype(Some(200)), Variant::Tuple(-33, 'é')]);
        check(&(Variant::Struct { text: "x".into() }, Unit, Newtype(1.5), Pair(true, -0.25), Pair(false, 7.0)));
    }

    #[test]
    fn bytes_are_packed_as_by_rmp_serde() {
        #[derive(Debug)]
        struct Bytes(usize);
        impl Serialize for Bytes {
            fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_bytes(&vec![7; self.0])
            }
        }
        [0, 1, 255, 256, 65_535, 65_536].map(Bytes).iter().for_each(check);
    }
}
