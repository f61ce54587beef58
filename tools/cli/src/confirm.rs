//! Asks before something is changed.

use crate::exit::Failure;
use crate::screen;
use rustix::termios::{QueueSelector, tcflush};
use std::io::{BufRead, IsTerminal, Write};

/// Says what will be done, and asks.
pub(crate) fn confirm(what: &str) -> Result<(), Failure> {
    let mut input = std::io::stdin().lock();
    screen::tell(what);
    if !input.is_terminal() {
        return Err(Failure::Usage(
            "nobody can be asked, because standard input is no terminal: give --yes".to_owned(),
        ));
    }
    // What was typed before the question answers another one.
    tcflush(&input, QueueSelector::IFlush).map_err(|error| Failure::Unasked(error.into()))?;
    let mut answer = String::new();
    let mut err = std::io::stderr();
    let asked = write!(err, "Continue? [y/N] ").and_then(|()| err.flush()).and_then(|()| input.read_line(&mut answer));
    asked.map_err(Failure::Unasked)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Declined),
    }
}
