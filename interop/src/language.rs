//! Which lock clients there are, and whether this machine can run them.

use anyhow::ensure;
use std::io::{self, Write};
use std::path::PathBuf;
use std::{env, fmt};

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
    /// With `LAMBDA_LOCK_CI` when `interop/build` did not build it, unless `LAMBDA_LOCK_WITHOUT_JAVA` (or
    /// `_GO`, or `_PYTHON`) says that this is known.
    pub fn program(self) -> anyhow::Result<Option<PathBuf>> {
        let program = target().join("interop").join(self.name()).join("run");
        if program.exists() {
            return Ok(Some(program));
        }
        let without = format!("LAMBDA_LOCK_WITHOUT_{}", self.name().to_uppercase());
        let known = env::var_os(&without).is_some() || env::var_os("LAMBDA_LOCK_CI").is_none();
        ensure!(known, "run interop/build before the tests, or set {without}=1 to skip what needs the {self} client");
        // Not `eprintln!`, which the test harness would hold back.
        writeln!(io::stderr(), "SKIPPED: what needs the {self} lock client, because interop/build has not built it")?;
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
    workspace.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
