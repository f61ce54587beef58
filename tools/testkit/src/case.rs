//! Names the case of a loop, so that a failed test prints it.

use std::fmt::Display;

/// The name of a case, see [`case`].
#[derive(Debug)]
#[must_use = "the case ends when this is dropped: `let _case = case(…)`"]
pub struct Case(String);

/// Names the case of a test until the returned value is dropped. Put `let _case = case(format!("{fault:?}"));` at the
/// top of a loop. If the test fails, the name is printed.
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
