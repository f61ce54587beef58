//! The other lock clients, and whether this machine can run them.

use anyhow::ensure;
use std::io::{self, Write};
use std::path::PathBuf;
use std::{env, fmt};

/// A lock client of another project, by its language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Language {
    /// `com.amazonaws:dynamodb-lock-client`.
    Java,
    /// `cirello.io/dynamolock/v2`.
    Go,
    /// `python-dynamodb-lock`, whose table has another schema.
    Python,
}

impl Language {
    /// Returns the program that starts the driver. If it was not built, prints a line on stderr and
    /// returns `None`.
    ///
    /// # Errors
    /// With `LAMBDA_LOCK_CI`, returns an error if `proof/interop/build` did not build it, unless
    /// `LAMBDA_LOCK_WITHOUT_JAVA` (or `_GO`, or `_PYTHON`) is set.
    pub fn program(self) -> anyhow::Result<Option<PathBuf>> {
        let program = target().join("interop").join(self.name()).join("run");
        if program.exists() {
            return Ok(Some(program));
        }
        let without = format!("LAMBDA_LOCK_WITHOUT_{}", self.name().to_uppercase());
        let known = env::var_os(&without).is_some() || env::var_os("LAMBDA_LOCK_CI").is_none();
        ensure!(
            known,
            "run proof/interop/build before the tests, or set {without}=1 to skip the tests that need the {self} client"
        );
        // Not `eprintln!`, because the test harness would hold it back.
        writeln!(
            io::stderr(),
            "SKIPPED: tests that need the {self} lock client, because proof/interop/build has not built it"
        )?;
        Ok(None)
    }

    /// Returns the name in lower case.
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
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    workspace.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
