//! Whether a value has a number that JSON cannot write: serde_json writes NaN and the infinities as `null`.

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use std::fmt::{self, Display};

/// Whether all numbers of this value are finite, as far as it can be serialized.
pub(super) fn is_finite(value: &impl Serialize) -> bool {
    !matches!(value.serialize(Finite), Err(Failure::NotFinite))
}

/// Serializes nothing. Fails at a number that is not finite.
struct Finite;

#[derive(Debug)]
enum Failure {
    NotFinite,
    /// Of the value itself.
    Other,
}

type Outcome = Result<(), Failure>;

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not finite")
    }
}

impl std::error::Error for Failure {}

impl Error for Failure {
    fn custom<T: Display>(_: T) -> Self {
        Failure::Other
    }
}

/// Methods for values without numbers that may be infinite.
macro_rules! fine {
    ($($name:ident($($given:ty),*);)*) => {
        $(fn $name(self, $(_: $given),*) -> Outcome {
            Ok(())
        })*
    };
}

/// Methods that begin a compound value.
macro_rules! begins {
    ($($name:ident($($given:ty),*);)*) => {
        $(fn $name(self, $(_: $given),*) -> Result<Self, Failure> {
            Ok(self)
        })*
    };
}

impl Serializer for Finite {
    type Ok = ();
    type Error = Failure;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    fine! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    begins! {
        serialize_tuple(usize);
        serialize_tuple_struct(&'static str, usize);
        serialize_tuple_variant(&'static str, u32, &'static str, usize);
        serialize_struct(&'static str, usize);
        serialize_struct_variant(&'static str, u32, &'static str, usize);
        serialize_seq(Option<usize>);
        serialize_map(Option<usize>);
    }

    fn serialize_f32(self, number: f32) -> Outcome {
        self.serialize_f64(number.into())
    }

    fn serialize_f64(self, number: f64) -> Outcome {
        if number.is_finite() { Ok(()) } else { Err(Failure::NotFinite) }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Outcome {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Outcome {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Outcome {
        value.serialize(self)
    }
}

/// Compound values: each part is looked at.
macro_rules! parts {
    ($($compound:ident: $($name:ident($($given:ty),*)),*;)*) => {
        $(impl $compound for Finite {
            type Ok = ();
            type Error = Failure;

            $(fn $name<T: Serialize + ?Sized>(&mut self, $(_: $given,)* value: &T) -> Outcome {
                value.serialize(Finite)
            })*

            fn end(self) -> Outcome {
                Ok(())
            }
        })*
    };
}

parts! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeMap: serialize_key(), serialize_value();
    SerializeStruct: serialize_field(&'static str);
    SerializeStructVariant: serialize_field(&'static str);
}
