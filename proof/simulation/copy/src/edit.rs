//! An edit: text to find in a file, and text to put in its place.

use std::ops::Range;

/// The text to find must be in the file exactly once. White space and line breaks make no difference, so that
/// formatting alone never breaks an edit.
#[derive(Clone, Copy)]
pub struct Edit {
    /// The known mistake, or another purpose of the edit.
    pub name: &'static str,
    /// Relative to the copied directory.
    pub file: &'static str,
    /// The text to find.
    pub find: &'static str,
    /// What to put in its place. `MISTAKEN` is replaced by an expression that tells whether the mistake is switched on.
    pub put: &'static str,
}

impl Edit {
    pub(crate) fn complaint(&self, why: &str) -> String {
        format!("{} in {}: {why}\n    {}", self.name, self.file, self.find.trim())
    }

    fn replacement(&self, switches: &str) -> String {
        let switch = format!("{switches}::on({switches}::Mistake::{})", self.name);
        self.put.trim().replace("MISTAKEN", &switch)
    }
}

/// Applies all edits to the original text. An edit that does not apply is skipped, and a message is added for it.
pub(crate) fn apply<'a>(
    text: &str,
    edits: impl Iterator<Item = &'a Edit>,
    switches: &str,
    complaints: &mut Vec<String>,
) -> String {
    let mut found: Vec<(Range<usize>, &Edit)> = Vec::new();
    for edit in edits {
        match find(text, edit.find).as_slice() {
            [one] => found.push((one.clone(), edit)),
            others => {
                complaints.push(edit.complaint(&format!("this text is there {} times instead of once", others.len())))
            }
        }
    }
    found.sort_by_key(|(range, _)| range.start);
    let mut out = String::with_capacity(text.len() * 2);
    let mut copied = 0;
    for (range, edit) in found {
        if range.start < copied {
            complaints.push(edit.complaint("this text overlaps with that of another edit"));
            continue;
        }
        out.push_str(&text[copied..range.start]);
        out.push_str(&edit.replacement(switches));
        copied = range.end;
    }
    out.push_str(&text[copied..]);
    out
}

/// Where the pattern occurs. White space is ignored.
fn find(text: &str, pattern: &str) -> Vec<Range<usize>> {
    let is_text = |c: &char| !c.is_whitespace();
    let dense: String = text.chars().filter(is_text).collect();
    let pattern: String = pattern.chars().filter(is_text).collect();
    // For each byte of the dense text: its position in the text.
    let places: Vec<usize> =
        text.char_indices().filter(|(_, c)| is_text(c)).flat_map(|(place, c)| place..place + c.len_utf8()).collect();
    let range = |start: usize| places[start]..places[start + pattern.len() - 1] + 1;
    dense.match_indices(&pattern).map(|(start, _)| range(start)).collect()
}
