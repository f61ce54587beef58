//! The name of the case that a loop over scenarios is at.

use std::fmt::Display;

/// Names a case for as long as it lives; see [`case`].
#[derive(Debug)]
#[must_use = "the case ends when this is dropped: `let _case = case(…)`"]
pub struct Case(String);

/// Names the case that a test is at, for as long as the answer lives: `let _case = case(format!("{fault:?}"));` at the
/// top of a loop. When the test fails, by whichever assertion, the name is printed.
pub fn case(name: impl Display) -> Case {
    Case(name.to_string())
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the case that failed: {}", self.0);
        }
    }
}
