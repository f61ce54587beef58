//! Parses the text of an expression.

use super::Order;

/// A parsed text, with what else DynamoDB checks in it.
#[derive(Debug)]
pub(super) struct Text<T> {
    pub(super) says: T,
    /// The placeholders in the text, `#` and `:`.
    pub(super) placeholders: Vec<String>,
    pub(super) redundant_parentheses: bool,
}

impl<T> Text<T> {
    pub(super) fn of(text: &str, parse: fn(&str) -> T) -> Self {
        let words = words(text);
        let placeholders = words.iter().filter(|word| word.starts_with(['#', ':']) && word.len() > 1);
        Self {
            says: parse(text),
            placeholders: placeholders.map(|word| (*word).to_owned()).collect(),
            redundant_parentheses: redundant_parentheses(&words),
        }
    }
}

/// Whether a pair of parentheses contains nothing but another pair.
fn redundant_parentheses(words: &[&str]) -> bool {
    let closes = |open: usize| {
        let mut depth = 0;
        words.iter().enumerate().skip(open).find_map(|(at, word)| {
            depth += i32::from(*word == "(") - i32::from(*word == ")");
            (depth == 0).then_some(at)
        })
    };
    let pairs = words.windows(2).enumerate().filter(|(_, pair)| *pair == ["(", "("]);
    pairs
        .into_iter()
        .any(|(at, _)| matches!((closes(at), closes(at + 1)), (Some(outer), Some(inner)) if inner + 1 == outer))
}

#[derive(Debug)]
pub(super) enum Condition {
    Or(Vec<Condition>),
    And(Vec<Condition>),
    Not(Box<Condition>),
    Compare(Operand, Order, Operand),
    Between(Operand, Operand, Operand),
    In(Operand, Vec<Operand>),
    Exists(String),
    BeginsWith(String, Operand),
}

#[derive(Debug)]
pub(super) struct Update {
    pub(super) sets: Vec<(String, Set)>,
    pub(super) removes: Vec<String>,
    /// Sets of numbers to add to an attribute, and to take away from it.
    pub(super) adds: Vec<(String, Operand)>,
    pub(super) deletes: Vec<(String, Operand)>,
}

impl Update {
    /// The attributes that are written.
    pub(super) fn written(&self) -> impl Iterator<Item = &String> {
        let members = self.adds.iter().chain(&self.deletes).map(|(name, _)| name);
        self.sets.iter().map(|(name, _)| name).chain(&self.removes).chain(members)
    }
}

#[derive(Debug)]
pub(super) enum Set {
    Operand(Operand),
    IfNotExists(String, Operand),
    Sum(Box<Set>, Box<Set>),
}

/// An attribute, by its name or a `#` placeholder, its size, or a `:` placeholder.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Attribute(String),
    Size(String),
    Value(String),
}

pub(super) fn condition(text: &str) -> Condition {
    let mut reader = Reader::of(text);
    let condition = reader.either();
    reader.end();
    condition
}

pub(super) fn update(text: &str) -> Update {
    let mut reader = Reader::of(text);
    let mut update = Update { sets: Vec::new(), removes: Vec::new(), adds: Vec::new(), deletes: Vec::new() };
    while let Some(clause) = reader.take() {
        match clause {
            "SET" => update.sets = reader.list(Reader::assignment),
            "REMOVE" => update.removes = reader.list(Reader::word),
            "ADD" => update.adds = reader.list(Reader::members),
            "DELETE" => update.deletes = reader.list(Reader::members),
            other => panic!("unknown word {other} in the update {text:?}"),
        }
    }
    update
}

struct Reader<'a> {
    text: &'a str,
    words: Vec<&'a str>,
    next: usize,
}

impl<'a> Reader<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, words: words(text), next: 0 }
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).copied()
    }

    fn take(&mut self) -> Option<&'a str> {
        let word = self.peek();
        self.next += 1;
        word
    }

    fn takes(&mut self, wanted: &str) -> bool {
        let found = self.peek() == Some(wanted);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: &str) {
        assert!(self.takes(wanted), "{wanted} is missing at word {} of {:?}", self.next, self.text);
    }

    fn end(&self) {
        assert!(self.peek().is_none(), "{:?} is left over in {:?}", self.peek(), self.text);
    }

    fn word(&mut self) -> String {
        self.take().unwrap_or_else(|| panic!("the expression {:?} ends too early", self.text)).to_owned()
    }

    fn list<T>(&mut self, one: fn(&mut Self) -> T) -> Vec<T> {
        let mut list = vec![one(self)];
        while self.takes(",") {
            list.push(one(self));
        }
        list
    }

    fn members(&mut self) -> (String, Operand) {
        (self.word(), self.operand())
    }

    fn operand(&mut self) -> Operand {
        if self.peek() == Some("size") {
            return Operand::Size(self.argument());
        }
        let word = self.word();
        if word.starts_with(':') { Operand::Value(word) } else { Operand::Attribute(word) }
    }

    fn either(&mut self) -> Condition {
        let mut parts = vec![self.both()];
        while self.takes("OR") {
            parts.push(self.both());
        }
        Condition::Or(parts)
    }

    fn both(&mut self) -> Condition {
        let mut parts = vec![self.one()];
        while self.takes("AND") {
            parts.push(self.one());
        }
        Condition::And(parts)
    }

    fn one(&mut self) -> Condition {
        if self.takes("(") {
            let inner = self.either();
            self.expect(")");
            return inner;
        }
        if self.takes("NOT") {
            return Condition::Not(Box::new(self.one()));
        }
        match self.peek() {
            Some("attribute_exists") => Condition::Exists(self.argument()),
            Some("attribute_not_exists") => Condition::Not(Box::new(Condition::Exists(self.argument()))),
            Some("begins_with") => {
                self.next += 1;
                self.expect("(");
                let name = self.word();
                self.expect(",");
                let prefix = self.operand();
                self.expect(")");
                Condition::BeginsWith(name, prefix)
            }
            _ => self.comparison(),
        }
    }

    /// The only argument of a function.
    fn argument(&mut self) -> String {
        self.next += 1;
        self.expect("(");
        let name = self.word();
        self.expect(")");
        name
    }

    fn comparison(&mut self) -> Condition {
        let left = self.operand();
        let order = match self.take() {
            Some("=") => Order::Equal,
            Some("<>") => Order::Unequal,
            Some("<") => Order::Less,
            Some("<=") => Order::LessOrEqual,
            Some(">") => Order::Greater,
            Some(">=") => Order::GreaterOrEqual,
            Some("BETWEEN") => {
                let low = self.operand();
                self.expect("AND");
                return Condition::Between(left, low, self.operand());
            }
            Some("IN") => {
                self.expect("(");
                let list = self.list(Self::operand);
                self.expect(")");
                return Condition::In(left, list);
            }
            other => panic!("{other:?} in {:?}", self.text),
        };
        Condition::Compare(left, order, self.operand())
    }

    fn assignment(&mut self) -> (String, Set) {
        let name = self.word();
        self.expect("=");
        let mut set = self.addend();
        while self.takes("+") {
            set = Set::Sum(Box::new(set), Box::new(self.addend()));
        }
        (name, set)
    }

    fn addend(&mut self) -> Set {
        if self.peek() != Some("if_not_exists") {
            return Set::Operand(self.operand());
        }
        self.next += 1;
        self.expect("(");
        let name = self.word();
        self.expect(",");
        let otherwise = self.operand();
        self.expect(")");
        Set::IfNotExists(name, otherwise)
    }
}

fn words(text: &str) -> Vec<&str> {
    let part_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '#' | ':' | '.');
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '<' | '>' if rest[1..].starts_with(['=', '>']) => 2,
            _ if part_of_word(first) => rest.find(|c| !part_of_word(c)).unwrap_or(rest.len()),
            _ => 1,
        };
        let (word, after) = rest.split_at(length);
        words.push(word);
        rest = after.trim_start();
    }
    words
}
