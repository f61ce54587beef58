//! Attribute values and items without any SDK: what the protocol reads and writes.

/// A DynamoDB attribute value, as far as a lock record has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string.
    S(String),
    /// A number, in DynamoDB's decimal text.
    N(String),
    /// Bytes.
    B(Vec<u8>),
    /// A type that no lock record uses, by DynamoDB's name for it (`M`, `L`, `BOOL`, …).
    Other(&'static str),
}

impl Value {
    /// DynamoDB's name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::S(_) => "S",
            Value::N(_) => "N",
            Value::B(_) => "B",
            Value::Other(name) => name,
        }
    }
}

/// The attributes of one row.
///
/// A list and not a map: a lock record has about eight attributes, and looking through them is
/// cheaper than hashing them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item(Vec<(String, Value)>);

impl Item {
    /// The value of an attribute.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// Takes the value of an attribute out of the item.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let position = self.0.iter().position(|(own, _)| own == name)?;
        Some(self.0.swap_remove(position).1)
    }

    /// Sets an attribute.
    pub fn set(&mut self, name: impl Into<String>, value: Value) {
        let name = name.into();
        match self.0.iter_mut().find(|(own, _)| *own == name) {
            Some((_, own)) => *own = value,
            None => self.0.push((name, value)),
        }
    }

    /// All attributes, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl FromIterator<(String, Value)> for Item {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(attributes: I) -> Self {
        Self(attributes.into_iter().collect())
    }
}
