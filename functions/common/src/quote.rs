//! Texts of others in our errors: in part, because an error that is too large for its reader says nothing.

use std::fmt;

/// How many bytes of a text that came in, or that stands on a row, an error quotes at most.
pub const LONGEST_QUOTE: usize = 64;

/// The longest beginning of a text that has at most this many bytes and ends between two characters.
pub fn beginning(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// A text in quotation marks; a long one is cut, and says so.
pub fn quoted(text: &str) -> impl fmt::Display + '_ {
    Quoted(text, true)
}

/// As [`quoted`], without quotation marks.
pub(crate) fn short(text: &str) -> impl fmt::Display + '_ {
    Quoted(text, false)
}

struct Quoted<'a>(&'a str, bool);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text, marks) = *self;
        let part = beginning(text, LONGEST_QUOTE);
        if marks {
            write!(f, "{part:?}")?
        } else {
            f.write_str(part)?
        }
        if part.len() < text.len() {
            write!(f, "… (the first {} of {} bytes)", part.len(), text.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_is_quoted_whole_and_a_long_one_in_part() {
        assert_eq!(quoted("a \"b\"").to_string(), r#""a \"b\"""#);
        assert_eq!(quoted(&"x".repeat(64)).to_string(), format!("{:?}", "x".repeat(64)));
        let long = quoted(&"x".repeat(65)).to_string();
        assert_eq!(long, format!("{:?}… (the first 64 of 65 bytes)", "x".repeat(64)));
        assert_eq!(short(&"x".repeat(65)).to_string(), format!("{}… (the first 64 of 65 bytes)", "x".repeat(64)));
    }

    #[test]
    fn a_text_is_cut_between_two_characters() {
        for (text, longest, expected) in
            [("üü", 3, "ü"), ("üü", 4, "üü"), ("üü", 1, ""), ("ab", 9, "ab"), ("𝄞", 3, ""), ("", 0, "")]
        {
            assert_eq!(beginning(text, longest), expected, "{text} {longest}");
        }
    }
}
