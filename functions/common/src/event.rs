//! Reads requests field by field. A missing, malformed or unknown field is refused by its name.
//! Messages never contain the value of a field. They quote the name of an unknown field in part.

use crate::failure::Failure;
use crate::quote::short;
use lambda_lock_protocol::millis_rounded_up;
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};
use std::time::Duration;

/// The payload of an invocation as text. If it is not valid JSON, the function returns
/// `InvalidRequest` instead of the runtime's error.
pub type Event = Box<RawValue>;

/// The fields of a JSON object that have not been taken yet.
#[derive(Clone, Debug)]
pub struct Fields {
    /// The prefix of the fields' names in messages: empty, or for example `lock.`.
    prefix: &'static str,
    fields: Vec<(String, Value)>,
}

impl Fields {
    /// Reads the fields of an event.
    pub fn of_event(event: &RawValue) -> Result<Self, Failure> {
        match serde_json::from_str(event.get()) {
            Ok(Value::Object(fields)) => Ok(Self::of_object(fields, "")),
            Ok(_) => Err(Failure::invalid_request(
                "the event is no JSON object: send an object with the fields of the request",
            )),
            Err(error) => Err(Failure::invalid_request(format!("the event cannot be read as JSON: {error}"))),
        }
    }

    fn of_object(fields: Map<String, Value>, prefix: &'static str) -> Self {
        Self { prefix, fields: fields.into_iter().collect() }
    }

    /// Whether the field is there, even if it is null.
    pub fn has(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    /// Takes a field. Null counts as a value.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.place(name).map(|place| self.fields.remove(place).1)
    }

    /// Returns a text inside nested objects, without taking it.
    pub fn peek(&self, path: &[&str]) -> Option<&str> {
        let (first, rest) = path.split_first()?;
        let (_, value) = self.fields.get(self.place(first)?)?;
        rest.iter().try_fold(value, |value, name| value.get(name))?.as_str()
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|(field, _)| field == name)
    }

    /// Takes a required object.
    pub fn object(&mut self, name: &'static str, prefix: &'static str) -> Result<Fields, Failure> {
        match self.required(name)? {
            Value::Object(fields) => Ok(Self::of_object(fields, prefix)),
            _ => Err(self.malformed(name, "give an object")),
        }
    }

    /// Returns a field without taking it.
    pub fn peek_value(&self, name: &str) -> Option<&Value> {
        self.place(name).map(|place| &self.fields[place].1)
    }

    /// Takes a required list of objects.
    pub fn objects(&mut self, name: &'static str, prefix: &'static str) -> Result<Vec<Fields>, Failure> {
        let Value::Array(list) = self.required(name)? else {
            return Err(self.malformed(name, "give a list of objects"));
        };
        let object = |value| match value {
            Value::Object(fields) => Ok(Self::of_object(fields, prefix)),
            _ => Err(self.malformed(name, "give a list of objects")),
        };
        list.into_iter().map(object).collect()
    }

    /// Takes a required text.
    pub fn text(&mut self, name: &str) -> Result<String, Failure> {
        match self.required(name)? {
            Value::String(text) => Ok(text),
            _ => Err(self.malformed(name, "give a text")),
        }
    }

    /// Takes an optional text.
    pub fn optional_text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        if self.has(name) { self.text(name).map(Some) } else { Ok(None) }
    }

    /// Takes a required text of 1 to `longest` bytes.
    pub fn name(&mut self, name: &str, longest: usize) -> Result<String, Failure> {
        let text = self.text(name)?;
        if text.is_empty() || text.len() > longest {
            let hint = format!("it has {} bytes of text; give 1 to {longest}", text.len());
            return Err(self.malformed(name, &hint));
        }
        Ok(text)
    }

    /// Takes an optional text of 1 to `longest` bytes.
    pub fn optional_name(&mut self, name: &str, longest: usize) -> Result<Option<String>, Failure> {
        if self.has(name) { self.name(name, longest).map(Some) } else { Ok(None) }
    }

    /// Takes an optional text of at most `longest` bytes.
    pub fn optional_text_up_to(&mut self, name: &str, longest: usize) -> Result<Option<String>, Failure> {
        let text = self.optional_text(name)?;
        match text.as_ref().map(String::len).filter(|length| *length > longest) {
            Some(length) => {
                Err(self.malformed(name, &format!("it has {length} bytes of text; give at most {longest}")))
            }
            None => Ok(text),
        }
    }

    /// Takes an optional Boolean. A missing one is `false`.
    pub fn flag(&mut self, name: &str) -> Result<bool, Failure> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(self.malformed(name, "give true or false")),
        }
    }

    /// Takes a required whole number. A fraction of zero is allowed, as in `1.0`.
    pub fn whole_number(&mut self, name: &str) -> Result<u64, Failure> {
        let value = self.required(name)?;
        let whole = value.as_u64().or_else(|| {
            // A float is exact up to 2⁵³.
            let float = value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9.0e15).contains(float));
            float.map(|float| float as u64)
        });
        whole.ok_or_else(|| self.malformed(name, "give a whole number that is not negative"))
    }

    /// Takes required seconds, as a decimal number that is not negative.
    pub fn seconds(&mut self, name: &str) -> Result<Duration, Failure> {
        let hint = "give a number of seconds from 0 to 1.8e19";
        let seconds = self.required(name)?.as_f64().unwrap_or(f64::NAN);
        // A value above zero is not rounded down to zero.
        let least = if seconds > 0.0 { Duration::from_nanos(1) } else { Duration::ZERO };
        let duration = Duration::try_from_secs_f64(seconds).map_err(|_| self.malformed(name, hint))?;
        Ok(duration.max(least))
    }

    /// Takes optional seconds.
    pub fn optional_seconds(&mut self, name: &str) -> Result<Option<Duration>, Failure> {
        if self.has(name) { self.seconds(name).map(Some) } else { Ok(None) }
    }

    /// Refuses the request if a field is left.
    pub fn nothing_else(self) -> Result<(), Failure> {
        match self.fields.first() {
            Some((unknown, _)) => Err(Failure::invalid_request(format!(
                "{}{} is no field of this request: remove it, or correct its name",
                self.prefix,
                short(unknown)
            ))),
            None => Ok(()),
        }
    }

    /// Returns the error for a malformed field. `hint` tells the caller what to send.
    pub fn malformed(&self, name: &str, hint: &str) -> Failure {
        Failure::invalid_request(format!("{}{name} is malformed: {hint}", self.prefix))
    }

    fn required(&mut self, name: &str) -> Result<Value, Failure> {
        let prefix = self.prefix;
        self.take(name).ok_or_else(|| Failure::invalid_request(format!("{prefix}{name} is missing")))
    }
}

/// Returns a duration as decimal seconds, without a fraction if it is whole.
pub fn seconds_json(duration: Duration) -> Value {
    let millis = millis_rounded_up(duration);
    if millis.is_multiple_of(1000) {
        return Value::from(millis / 1000);
    }
    Number::from_f64(millis as f64 / 1000.0).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Result<Fields, Failure> {
        Fields::of_event(&RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn an_event_that_is_not_a_json_object_is_an_invalid_request() {
        for json in ["[]", "null", "7", r#""text""#, r#"{"leaseSeconds":1e999}"#] {
            assert_eq!(fields(json).unwrap_err().error_type(), "InvalidRequest", "{json}");
        }
    }

    #[test]
    fn seconds_are_decimal_and_not_negative() {
        let seconds = |text: &str| fields(&format!(r#"{{"s":{text}}}"#)).and_then(|mut fields| fields.seconds("s"));
        assert_eq!(seconds("0.0015").unwrap(), Duration::from_micros(1500));
        assert_eq!(seconds("300").unwrap(), Duration::from_secs(300));
        assert_eq!(seconds("0").unwrap(), Duration::ZERO);
        assert_eq!(seconds("1e-15").unwrap(), Duration::from_nanos(1));
        for wrong in ["-1", "-0.001", "1e300", "\"300\"", "null", "true"] {
            assert!(seconds(wrong).unwrap_err().message().starts_with("s is malformed"), "{wrong}");
        }
    }

    #[test]
    fn seconds_read_back_as_they_were_written() {
        assert_eq!(seconds_json(Duration::from_secs(300)).to_string(), "300");
        assert_eq!(seconds_json(Duration::from_millis(1500)).to_string(), "1.5");
        assert_eq!(seconds_json(Duration::from_micros(1)).to_string(), "0.001");
    }

    #[test]
    fn whole_numbers_may_have_a_fraction_of_zero() {
        let number = |text: &str| fields(&format!(r#"{{"n":{text}}}"#)).and_then(|mut fields| fields.whole_number("n"));
        assert_eq!(number("1760000000001").unwrap(), 1_760_000_000_001);
        assert_eq!(number("1760000000001.0").unwrap(), 1_760_000_000_001);
        for wrong in ["1.5", "-1", "\"1\"", "1e18"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn messages_name_the_field_and_never_its_value() {
        let mut event = fields(r#"{"data":{"secret":"s3cret"},"lock":{"extra":"s3cret"}}"#).unwrap();
        let data = event.text("data").unwrap_err();
        let lock = event.object("lock", "lock.").unwrap().nothing_else().unwrap_err();
        assert!(
            data.message().starts_with("data is malformed") && lock.message().starts_with("lock.extra is no field")
        );
        assert!(!data.message().contains("s3cret") && !lock.message().contains("s3cret"));
    }
}
