//! JSON whose fields keep their order, so that a state reads from its type to its successor.

use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Json {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Whole(u64),
    /// A number with a fraction.
    Fraction(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object.
    Object(Object),
}

/// A JSON object. Its fields have the order in which they were added. It is displayed as indented text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object(Vec<(String, Json)>);

impl Object {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a field.
    pub(crate) fn with(mut self, name: impl Into<String>, value: impl Into<Json>) -> Self {
        self.0.push((name.into(), value.into()));
        self
    }

    /// Adds the fields of another object.
    pub(crate) fn with_all(mut self, other: Object) -> Self {
        self.0.extend(other.0);
        self
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Whole(value) => serializer.serialize_u64(*value),
            Json::Fraction(value) => serializer.serialize_f64(*value),
            Json::Text(value) => serializer.serialize_str(value),
            Json::List(values) => serializer.collect_seq(values),
            Json::Object(object) => object.serialize(serializer),
        }
    }
}

/// How long a line may be that has a whole object or list.
const LINE: usize = 120;

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        write_object(&mut text, self, 0);
        f.write_str(&text)
    }
}

impl Json {
    /// Writes the value into a text whose lines are indented by so many steps.
    fn write(&self, text: &mut String, depth: usize) {
        match self {
            Json::Bool(value) => text.push_str(&value.to_string()),
            Json::Whole(value) => text.push_str(&value.to_string()),
            Json::Fraction(value) => text.push_str(&value.to_string()),
            Json::Text(value) => write_text(text, value),
            Json::List(values) => write_all(text, ('[', ']'), values, depth, |text, value, depth| {
                value.write(text, depth);
            }),
            Json::Object(object) => write_object(text, object, depth),
        }
    }
}

fn write_object(text: &mut String, object: &Object, depth: usize) {
    write_all(text, ('{', '}'), &object.0, depth, |text, (name, value), depth| {
        write_text(text, name);
        text.push_str(": ");
        value.write(text, depth);
    });
}

/// Writes the entries into one line where they fit, otherwise each into a line of its own.
fn write_all<T>(
    text: &mut String,
    (open, close): (char, char),
    entries: &[T],
    depth: usize,
    write: impl Fn(&mut String, &T, usize),
) {
    let begin = text.len();
    let column = begin - text.rfind('\n').map_or(0, |end| end + 1);
    text.push(open);
    for (position, entry) in entries.iter().enumerate() {
        text.push_str(if position == 0 { "" } else { ", " });
        write(text, entry, depth + 1);
    }
    text.push(close);
    let fits = column + text.len() - begin <= LINE && !text[begin..].contains('\n');
    // The states and what they are made of stand below each other.
    if fits && depth > 2 || entries.is_empty() {
        return;
    }
    text.truncate(begin);
    text.push(open);
    for (position, entry) in entries.iter().enumerate() {
        text.push_str(if position == 0 { "\n" } else { ",\n" });
        text.push_str(&"  ".repeat(depth + 1));
        write(text, entry, depth + 1);
    }
    text.push('\n');
    text.push_str(&"  ".repeat(depth));
    text.push(close);
}

/// Writes a text in ASCII, because not everything between a file and a state machine keeps other characters.
fn write_text(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            ' '..='~' => text.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    text.push('"');
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Json::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        Json::Whole(value)
    }
}

/// A whole number is written without a fraction.
impl From<f64> for Json {
    fn from(value: f64) -> Self {
        if value.fract() == 0.0 && (0.0..1e15).contains(&value) {
            Json::Whole(value as u64)
        } else {
            Json::Fraction(value)
        }
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Self {
        Json::Text(value.to_owned())
    }
}

impl From<String> for Json {
    fn from(value: String) -> Self {
        Json::Text(value)
    }
}

impl From<Object> for Json {
    fn from(value: Object) -> Self {
        Json::Object(value)
    }
}

impl<const N: usize, T: Into<Json>> From<[T; N]> for Json {
    fn from(values: [T; N]) -> Self {
        Json::List(values.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Json>> From<Vec<T>> for Json {
    fn from(values: Vec<T>) -> Self {
        Json::List(values.into_iter().map(Into::into).collect())
    }
}
