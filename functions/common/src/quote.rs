//! Shortens texts of other clients in our errors, because a very long error does not reach its reader.

use std::fmt;

/// How many bytes of a text from a request or a row an error quotes at most.
pub const MAX_QUOTE_BYTES: usize = 64;

/// Returns the longest beginning of a text that has at most this many bytes and ends between two characters.
pub fn beginning(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// A text in quotation marks. A long text is shortened, and its size is added.
///
/// The beginning and the end are kept, because owners of workflows begin with the same ARN and differ at the
/// end.
pub fn quoted(text: &str) -> impl fmt::Display + '_ {
    Quoted(text, true)
}

/// As [`quoted`], without quotation marks.
pub fn short(text: &str) -> impl fmt::Display + '_ {
    Quoted(text, false)
}

struct Quoted<'a>(&'a str, bool);

/// How many bytes of the beginning of a long text are kept. The rest of [`MAX_QUOTE_BYTES`] is for its end.
const BEGINNING: usize = 16;

fn end(text: &str, longest: usize) -> &str {
    let begin = (text.len().saturating_sub(longest)..=text.len()).find(|begin| text.is_char_boundary(*begin));
    begin.and_then(|begin| text.get(begin..)).unwrap_or_default()
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text, marks) = *self;
        let write =
            |f: &mut fmt::Formatter<'_>, text: &str| if marks { write!(f, "{text:?}") } else { f.write_str(text) };
        if text.len() <= MAX_QUOTE_BYTES {
            return write(f, text);
        }
        let (first, last) = (beginning(text, BEGINNING), end(text, MAX_QUOTE_BYTES - BEGINNING));
        write(f, &format!("{first}…{last}"))?;
        write!(f, " ({} of {} bytes)", first.len() + last.len(), text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_is_quoted_whole_and_a_long_one_in_part() {
        assert_eq!(quoted("a \"b\"").to_string(), r#""a \"b\"""#);
        assert_eq!(quoted(&"x".repeat(64)).to_string(), format!("{:?}", "x".repeat(64)));
        let long = format!("{}{}", "a".repeat(30), "z".repeat(70));
        let (first, last) = ("a".repeat(16), "z".repeat(48));
        assert_eq!(quoted(&long).to_string(), format!(r#""{first}…{last}" (64 of 100 bytes)"#));
        assert_eq!(short(&long).to_string(), format!("{first}…{last} (64 of 100 bytes)"));
    }

    #[test]
    fn the_owners_of_two_executions_of_one_state_machine_are_told_apart() {
        let owner = |id: u32| {
            let machine = "arn:aws:states:eu-central-1:123456789012:execution:a-state-machine-of-ours";
            format!("{machine}:8f5a3c1e-0000-4000-8000-{id:012}/0/17")
        };
        assert_ne!(quoted(&owner(1)).to_string(), quoted(&owner(2)).to_string());
        assert!(quoted(&owner(2)).to_string().contains("8f5a3c1e-0000-4000-8000-000000000002/0/17"));
    }

    #[test]
    fn a_text_is_cut_between_two_characters() {
        for (text, longest, first, last) in [
            ("üü", 3, "ü", "ü"),
            ("üü", 4, "üü", "üü"),
            ("üü", 1, "", ""),
            ("ab", 9, "ab", "ab"),
            ("ab", 1, "a", "b"),
            ("𝄞", 3, "", ""),
            ("", 0, "", ""),
        ] {
            assert_eq!((beginning(text, longest), end(text, longest)), (first, last), "{text} {longest}");
        }
    }
}
