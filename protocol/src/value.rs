//! Attribute values and items without any SDK.

/// A DynamoDB attribute value of a type that a lock record uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    S(String),
    /// A number, as DynamoDB's decimal text.
    N(String),
    B(Vec<u8>),
    /// A set of numbers, each as DynamoDB's decimal text, in no particular order.
    Ns(Vec<String>),
    /// Any other type, by DynamoDB's name for it (`M`, `L`, `BOOL`, …).
    Other(&'static str),
}

impl Value {
    /// DynamoDB's name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::S(_) => "S",
            Value::N(_) => "N",
            Value::B(_) => "B",
            Value::Ns(_) => "NS",
            Value::Other(name) => name,
        }
    }
}

/// The attributes of one row.
///
/// This is a list and not a map, because a lock record has about eight attributes. To search through them costs less
/// than to hash them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item(Vec<(String, Value)>);

impl Item {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// The text of an attribute. `None` where it is missing, or no text.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::S(text)) => Some(text),
            _ => None,
        }
    }

    /// The number of an attribute. `None` where it is missing, or no whole number from 0 on.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Value::N(number)) => number.parse().ok(),
            _ => None,
        }
    }

    /// Removes an attribute and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let position = self.0.iter().position(|(own, _)| own == name)?;
        Some(self.0.swap_remove(position).1)
    }

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
