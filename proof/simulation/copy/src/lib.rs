//! Copies the source of a crate and edits the copy, for the build scripts of what the simulation drives. The edits add the
//! known mistakes, each behind a switch, and the simulated network. The crates themselves contain neither.

mod edit;

pub use edit::Edit;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

/// Copies `source`, which is relative to the package whose build script calls this, to `src` in the directory of its build.
/// `switches` is the path of the module that knows which mistake is switched on.
#[allow(clippy::print_stdout, reason = "this is how a build script talks to Cargo")]
pub fn copy(source: &str, switches: &str, edits: &[Edit]) -> ExitCode {
    println!("cargo::rerun-if-changed={source}");
    // The copy contains code for the feature `lambda`, which is never on here.
    println!("cargo::rustc-check-cfg=cfg(feature, values(\"lambda\"))");
    let complaint = match edited(Path::new(source), switches, edits) {
        Ok(complaints) if complaints.is_empty() => return ExitCode::SUCCESS,
        Ok(complaints) => format!("these edits of {source} do not apply:\n{}", complaints.join("\n")),
        Err(error) => format!("{source} could not be copied: {error}"),
    };
    for line in complaint.lines() {
        println!("cargo::error={line}");
    }
    ExitCode::FAILURE
}

/// Writes the edited copy. Returns one message for each edit that does not apply.
fn edited(source: &Path, switches: &str, edits: &[Edit]) -> io::Result<Vec<String>> {
    let target = Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("src");
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    let mut files = Vec::new();
    list(source, Path::new(""), &mut files)?;
    let missing = edits.iter().filter(|edit| !files.iter().any(|file| file == Path::new(edit.file)));
    let mut complaints: Vec<String> = missing.map(|edit| edit.complaint("there is no such file")).collect();
    for file in &files {
        let text = fs::read_to_string(source.join(file))?;
        let here = edits.iter().filter(|edit| file == Path::new(edit.file));
        let mut text = edit::apply(&text, here, switches, &mut complaints);
        if file == Path::new("lib.rs") {
            text = without_inner_attributes(&text);
        }
        let path = target.join(file);
        fs::create_dir_all(path.parent().unwrap_or(&target))?;
        fs::write(path, text)?;
    }
    Ok(complaints)
}

fn list(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list(root, &path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Removes inner attributes and inner docs, because `include!` does not accept them.
fn without_inner_attributes(text: &str) -> String {
    let is_inner = |line: &&str| line.starts_with("//!") || line.starts_with("#![");
    text.lines().filter(|line| !is_inner(line)).flat_map(|line| [line, "\n"]).collect()
}
