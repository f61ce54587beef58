//! Evaluates DynamoDB's condition and update expressions on a row, without a DynamoDB.
//!
//! It understands only the expressions of this project's requests. Anything else is a panic, because a simulation that
//! misunderstands its requests proves nothing. Tests compare it with the embedded DynamoDB and, if Java is installed,
//! with AWS's own emulator.

mod check;
mod number;
mod parse;

pub use check::complaint;
use lambda_lock_protocol::{Expression, Item, Returns, Value};
pub(crate) use number::Decimal;
use parse::{Condition, Operand, Set, Text, Update};
use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Applied, with the item that it was asked to return.
    Applied(Item),
    /// The condition did not hold.
    Refused,
    /// The update met a value on the row that it cannot use, or its result is a value that DynamoDB does not store.
    Invalid(&'static str),
}

/// Whether the condition holds on this row.
pub fn holds(expression: &Expression, row: Option<&Item>) -> bool {
    expression.condition.is_empty() || condition(expression).says.holds(&Scene { expression, row })
}

/// `UpdateItem`. `key` returns the attributes of a row that the update creates.
pub fn update(expression: &Expression, row: &mut Option<Item>, key: impl FnOnce() -> Item) -> Outcome {
    if !holds(expression, row.as_ref()) {
        return Outcome::Refused;
    }
    let update = self::changes(expression);
    let changes = match update.says.changes(expression, row.as_ref()) {
        Ok(changes) => changes,
        Err(why) => return Outcome::Invalid(why),
    };
    let mut old = Item::default();
    if grown(row.as_ref(), &changes) > MAX_ITEM_BYTES {
        return Outcome::Invalid("Item size to update has exceeded the maximum allowed size");
    }
    let row = row.get_or_insert_with(key);
    for (name, value) in changes {
        if expression.returns == Returns::UpdatedOld
            && let Some(value) = row.get(name)
        {
            old.set(name, value.clone());
        }
        match value {
            Some(value) => row.set(name, value),
            None => drop(row.remove(name)),
        }
    }
    Outcome::Applied(match expression.returns {
        Returns::Nothing => Item::default(),
        Returns::AllNew => row.clone(),
        Returns::UpdatedOld => old,
    })
}

const WRONG_TYPE: &str = "An operand in the update expression has an incorrect data type";

/// A set of numbers. DynamoDB returns its members in no particular order, so they are put into one.
pub fn numbers(mut members: Vec<String>) -> Value {
    members.sort_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
    Value::Ns(members)
}

/// In bytes, names and values together.
const MAX_ITEM_BYTES: usize = 400 * 1024;

/// The approximate size of a row after these changes, as DynamoDB counts. The key itself is small and not counted.
fn grown(row: Option<&Item>, changes: &[(&str, Option<Value>)]) -> usize {
    let of = |(name, value): (&str, &Value)| match value {
        Value::S(text) => name.len() + text.len(),
        Value::N(number) => name.len() + number.len() / 2 + 1,
        Value::B(bytes) => name.len() + bytes.len(),
        Value::Ns(numbers) => name.len() + numbers.iter().map(|number| number.len() / 2 + 1).sum::<usize>(),
        Value::Other(_) => name.len() + 1,
    };
    let kept = row.into_iter().flat_map(Item::iter).filter(|(name, _)| changes.iter().all(|(other, _)| other != name));
    let new = changes.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?)));
    kept.chain(new).map(of).sum()
}

type Cache<T> = RefCell<HashMap<String, Rc<Text<T>>>>;

thread_local! {
    // There are few different texts, and millions of evaluations.
    static CONDITIONS: Cache<Condition> = RefCell::default();
    static UPDATES: Cache<Update> = RefCell::default();
}

fn parsed<T>(cache: &'static std::thread::LocalKey<Cache<T>>, text: &str, parse: fn(&str) -> T) -> Rc<Text<T>> {
    cache.with_borrow_mut(|cache| match cache.get(text) {
        Some(known) => known.clone(),
        None => cache.entry(text.to_owned()).or_insert(Rc::new(Text::of(text, parse))).clone(),
    })
}

fn condition(expression: &Expression) -> Rc<Text<Condition>> {
    parsed(&CONDITIONS, &expression.condition, parse::condition)
}

fn changes(expression: &Expression) -> Rc<Text<Update>> {
    parsed(&UPDATES, &expression.update, parse::update)
}

/// The row that an expression is evaluated on.
struct Scene<'a> {
    expression: &'a Expression,
    row: Option<&'a Item>,
}

impl<'a> Scene<'a> {
    fn attribute(&self, name: &str) -> Option<&'a Value> {
        self.row?.get(named(self.expression, name))
    }

    /// `None`: the row does not have the attribute.
    fn value(&self, operand: &Operand) -> Option<Cow<'a, Value>> {
        match operand {
            Operand::Attribute(name) => self.attribute(name).map(Cow::Borrowed),
            Operand::Size(name) => {
                let size = match self.attribute(name)? {
                    Value::S(text) => text.chars().count(),
                    Value::B(bytes) => bytes.len(),
                    Value::Ns(numbers) => numbers.len(),
                    Value::N(_) | Value::Other(_) => return None,
                };
                Some(Cow::Owned(Value::N(size.to_string())))
            }
            Operand::Value(name) => {
                let found = self.expression.values.iter().find(|(placeholder, _)| placeholder == name);
                Some(Cow::Borrowed(found.map_or_else(|| panic!("no value for {name}"), |(_, value)| value)))
            }
        }
    }

    /// A set of numbers with these members, or without them. `None` where nothing is left of it.
    fn with_members(&self, (name, operand): &(String, Operand), added: bool) -> Result<Option<Value>, &'static str> {
        let Some(Cow::Borrowed(Value::Ns(members))) = self.value(operand) else { panic!("{operand:?} is no set") };
        let mut set = match self.attribute(name) {
            None => Vec::new(),
            Some(Value::Ns(numbers)) => numbers.clone(),
            Some(_) => return Err(WRONG_TYPE),
        };
        set.retain(|number| !members.contains(number));
        if added {
            set.extend(members.iter().cloned());
        }
        Ok((!set.is_empty()).then(|| numbers(set)))
    }

    /// `None` if they cannot be compared: one is missing, or their types differ.
    fn compare(&self, left: &Operand, right: &Operand) -> Option<Ordering> {
        match (&*self.value(left)?, &*self.value(right)?) {
            (Value::S(left), Value::S(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
            (Value::N(left), Value::N(right)) => Some(match (left.parse::<u64>(), right.parse::<u64>()) {
                (Ok(left), Ok(right)) => left.cmp(&right),
                _ => decimal(left).cmp(&decimal(right)),
            }),
            (Value::B(left), Value::B(right)) => Some(left.cmp(right)),
            _ => None,
        }
    }
}

/// The attribute for a name or its placeholder.
fn named<'a>(expression: &'a Expression, name: &'a str) -> &'a str {
    if !name.starts_with('#') {
        return name;
    }
    let found = expression.names.iter().find(|(placeholder, _)| *placeholder == name);
    found.map_or_else(|| panic!("no name for {name}"), |(_, name)| name)
}

/// Reads a number that the table has already checked.
fn decimal(text: &str) -> Decimal {
    Decimal::parse(text).unwrap_or_else(|| panic!("DynamoDB does not accept this number: {text}"))
}

impl Condition {
    fn holds(&self, scene: &Scene<'_>) -> bool {
        match self {
            Condition::Or(parts) => parts.iter().any(|part| part.holds(scene)),
            Condition::And(parts) => parts.iter().all(|part| part.holds(scene)),
            Condition::Not(part) => !part.holds(scene),
            Condition::Compare(left, Order::Unequal, right) => {
                let (left, right) = (scene.value(left), scene.value(right));
                left.is_some() && right.is_some() && left != right
            }
            Condition::Compare(left, order, right) => {
                scene.compare(left, right).is_some_and(|found| order.allows(found))
            }
            Condition::Between(value, low, high) => {
                scene.compare(low, value).is_some_and(Ordering::is_le)
                    && scene.compare(value, high).is_some_and(Ordering::is_le)
            }
            Condition::In(value, list) => {
                list.iter().any(|other| scene.compare(value, other).is_some_and(Ordering::is_eq))
            }
            Condition::Exists(name) => scene.attribute(name).is_some(),
            Condition::BeginsWith(name, prefix) => match (scene.attribute(name), scene.value(prefix).as_deref()) {
                (Some(Value::S(text)), Some(Value::S(prefix))) => text.starts_with(prefix.as_str()),
                (Some(Value::B(bytes)), Some(Value::B(prefix))) => bytes.starts_with(prefix),
                _ => false,
            },
        }
    }
}

/// The operator of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    fn allows(self, found: Ordering) -> bool {
        match self {
            Order::Equal => found.is_eq(),
            Order::Unequal => found.is_ne(),
            Order::Less => found.is_lt(),
            Order::LessOrEqual => found.is_le(),
            Order::Greater => found.is_gt(),
            Order::GreaterOrEqual => found.is_ge(),
        }
    }
}

impl Update {
    /// The new values of the attributes. All of them are computed from the row before the update.
    fn changes<'a>(
        &'a self,
        expression: &'a Expression,
        row: Option<&Item>,
    ) -> Result<Vec<(&'a str, Option<Value>)>, &'static str> {
        let scene = Scene { expression, row };
        let mut changes = Vec::with_capacity(self.sets.len() + self.removes.len());
        for (name, set) in &self.sets {
            changes.push((named(expression, name), Some(set.value(&scene)?)));
        }
        changes.extend(self.removes.iter().map(|name| (named(expression, name), None)));
        for (clause, added) in [(&self.adds, true), (&self.deletes, false)] {
            for members in clause {
                changes.push((named(expression, &members.0), scene.with_members(members, added)?));
            }
        }
        Ok(changes)
    }
}

impl Set {
    fn value(&self, scene: &Scene<'_>) -> Result<Value, &'static str> {
        let missing = "The provided expression refers to an attribute that does not exist in the item";
        match self {
            Set::Operand(operand) => scene.value(operand).map(Cow::into_owned).ok_or(missing),
            Set::IfNotExists(name, otherwise) => {
                let found = scene.attribute(name).map(Cow::Borrowed).or_else(|| scene.value(otherwise));
                found.map(Cow::into_owned).ok_or(missing)
            }
            Set::Sum(left, right) => match (left.value(scene)?, right.value(scene)?) {
                (Value::N(left), Value::N(right)) => sum(&left, &right),
                _ => Err(WRONG_TYPE),
            },
        }
    }
}

fn sum(left: &str, right: &str) -> Result<Value, &'static str> {
    let sum = match (left.parse::<u64>(), right.parse::<u64>()) {
        (Ok(left), Ok(right)) => (u128::from(left) + u128::from(right)).to_string(),
        _ => decimal(left).plus(decimal(right)).ok_or("Number overflow")?.to_string(),
    };
    Ok(Value::N(sum))
}
