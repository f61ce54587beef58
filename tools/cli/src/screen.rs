//! What the commands share in what they print.

use crate::exit::Failure;
use anstyle::{AnsiColor, Style};
use icu_properties::CodePointSetData;
use icu_properties::props::DefaultIgnorableCodePoint;
use lambda_lock::LockKey;
use serde::Serialize;
use std::fmt::{Display, Write as _};
use std::io::{ErrorKind, IsTerminal, Write as _};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::{Duration, SystemTime};

pub(crate) const WRONG: Style = AnsiColor::Red.on_default().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
pub(crate) const FAINT: Style = Style::new().dimmed();
pub(crate) const STRONG: Style = Style::new().bold();

/// A text of a row, as it may be shown in a terminal: characters that nobody sees, or that change how others are seen, are
/// escaped.
pub(crate) fn plain(text: &str) -> String {
    let escaped = |c: char| if is_hidden(c) { c.escape_unicode().collect::<String>() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// A name within a sentence. It is quoted where it could be read as more of the sentence.
pub(crate) fn named(name: &str) -> String {
    let is_of_a_name = |c: char| c.is_alphanumeric() || "/._-:@+=#".contains(c);
    if !name.is_empty() && !name.ends_with('.') && name.chars().all(is_of_a_name) {
        return name.to_owned();
    }
    quoted(name)
}

/// A text of somebody within a sentence.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", plain(&text.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// A key within a sentence.
pub(crate) fn named_key(key: &LockKey) -> String {
    match key.sort_key() {
        None => named(key.key()),
        Some(sort_key) => format!("({}, {})", named(key.key()), named(sort_key)),
    }
}

/// Control characters, and others that have no picture, such as those that turn the direction of the text, fillers and blanks.
fn is_hidden(c: char) -> bool {
    const BRAILLE_BLANK: char = '\u{2800}';
    let is_ignorable = || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c);
    // Behind a letter, an accent is not escaped.
    let is_escaped = || format!("a{c}").escape_debug().count() > 2;
    !c.is_ascii_graphic() && c != ' ' && (c == BRAILLE_BLANK || is_ignorable() || is_escaped())
}

/// What `--json` says of a key, with these facts.
pub(crate) fn json_of(key: &LockKey, facts: serde_json::Value) -> std::io::Result<String> {
    let mut said = serde_json::json!({ "key": key.key() });
    if let Some(sort_key) = key.sort_key() {
        said["sortKey"] = sort_key.into();
    }
    if let (Some(said), serde_json::Value::Object(facts)) = (said.as_object_mut(), facts) {
        said.extend(facts);
    }
    json(&said)
}

/// What `--json` prints. It may hold texts of a row too.
pub(crate) fn json(value: &impl Serialize) -> std::io::Result<String> {
    let mut json = String::new();
    for c in serde_json::to_string(value)?.chars() {
        if is_hidden(c) {
            let units = c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
            json += &units;
        } else {
            json.push(c);
        }
    }
    Ok(json)
}

/// Prints what was done. Whoever cannot read it must not take the command for one that did nothing. Where nobody reads it any
/// more, it was done all the same.
pub(crate) fn print_done(line: &str, what: &'static str) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    let printed = writeln!(out, "{line}").and_then(|()| out.flush());
    printed.or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Failure::Untold(what, error)),
    })
}

/// Fails where standard output was closed when the process began. Then it is /dev/null, open for reading too, which takes
/// everything and keeps nothing. Whoever gives such a /dev/null himself cannot be told from that.
pub(crate) fn has_standard_output() -> std::io::Result<()> {
    let (out, null) = (std::io::stdout(), std::fs::metadata("/dev/null")?);
    let is_null = rustix::fs::fstat(&out)?.st_rdev as u64 == null.rdev() && null.file_type().is_char_device();
    if is_null && rustix::fs::fcntl_getfl(&out)?.contains(rustix::fs::OFlags::RDWR) {
        return Err(std::io::Error::other(
            "standard output is closed, or is /dev/null that is open for reading too, so nobody could release the lock. Write it \
             into a file, or hold it with lambda-lock run",
        ));
    }
    Ok(())
}

/// How long is waited for a message to be written. Nobody may read it, and a lock may be held meanwhile.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// Writes in a thread of its own: nobody may read it, and signals and the time are obeyed meanwhile. Cancel safe: then it may still
/// be written.
pub(crate) async fn aside(write: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> std::io::Result<()> {
    tokio::task::spawn_blocking(write).await?
}

/// Writes a line to standard error. Nobody has to be there to read it: what the command does goes on.
pub(crate) fn tell(line: impl Display) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// Tells how far long work is, where somebody looks. The next line is written over it.
pub(crate) fn progress(how_far: impl Display) {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r{how_far}\u{1b}[K\r");
    }
}

/// Removes the progress.
pub(crate) fn progress_ends() {
    progress("");
}

/// A duration in its two largest units, without fractions of a second.
pub(crate) fn span(duration: Duration) -> String {
    let text = humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// A time of day in UTC. A row may have one after the year 9999, which has no such form.
pub(crate) fn time(at: SystemTime) -> String {
    let mut time = String::new();
    match write!(time, "{}", humantime::format_rfc3339_seconds(at)) {
        Ok(()) => time,
        Err(_) => "after the year 9999".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_escaped() {
        for hidden in "\u{0}\u{7f}\u{9b}\u{a0}\u{ad}\u{34f}\u{115f}\u{180b}\u{200c}\u{200d}\u{202e}\u{2060}\u{2800}\u{3000}\u{3164}\u{fe0f}\u{feff}\u{ffa0}\u{e0041}\u{e0100}".chars() {
            assert_eq!(plain(&format!("a{hidden}b")), format!("a{}b", hidden.escape_unicode()));
        }
        for seen in ["Müller", "Mu\u{308}ller", "東京/7", "קבצים", "🔒", "a b"] {
            assert_eq!(plain(seen), seen);
        }
    }
}
