//! Which lock clients there are, and whether this machine can run them.

use anyhow::{Context, bail};
use std::io::{self, Write};
use std::path::PathBuf;
use std::{env, fmt, fs};

/// A lock client that is not ours, by its language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Language {
    /// `com.amazonaws:dynamodb-lock-client`.
    Java,
    /// `cirello.io/dynamolock/v2`.
    Go,
    /// `python-dynamodb-lock`: a table of its own shape.
    Python,
}

impl Language {
    /// The program that starts the driver. `None`, and a line on stderr, where it was not built.
    ///
    /// # Errors
    /// With `LAMBDA_LOCK_CI` when `interop/build` did not run, or failed. It may leave a language out
    /// whose tools are missing on the machine, and says so itself.
    pub fn program(self) -> anyhow::Result<Option<PathBuf>> {
        let directory = target().join("interop").join(self.name());
        let program = directory.join("run");
        if program.exists() {
            return Ok(Some(program));
        }
        let missing = directory.join("missing");
        let reason = if missing.exists() {
            fs::read_to_string(&missing).with_context(|| format!("{} cannot be read", missing.display()))?
        } else if env::var_os("LAMBDA_LOCK_CI").is_some() {
            bail!("interop/build has to build the {self} driver before the tests");
        } else {
            "interop/build has not run".to_owned()
        };
        // Not `eprintln!`, which the test harness would hold back.
        writeln!(io::stderr(), "SKIPPED: what needs the {self} lock client, because {}", reason.trim())?;
        Ok(None)
    }

    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Language::Java => "java",
            Language::Go => "go",
            Language::Python => "python",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn target() -> PathBuf {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from)
}
