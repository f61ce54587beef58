//! A run that is not finished, kept in a file after each of its parts: whatever interrupts it, they are not lost.

use super::results::Results;
use super::run::Settings;
use crate::Error;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
pub(crate) struct Unfinished {
    #[serde(skip)]
    file: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) results: Results,
}

impl Unfinished {
    /// A new run, which takes the place of one that was interrupted.
    pub(crate) fn new(directory: &Path, settings: Settings, results: Results) -> Self {
        Self { file: file(directory), settings, results }
    }

    /// The run that was interrupted, with its own settings.
    pub(crate) fn interrupted(directory: &Path) -> Result<Self, Error> {
        let file = file(directory);
        let text = fs::read(&file)
            .map_err(|error| format!("there is no interrupted run to go on with: {}: {error}", file.display()))?;
        let kept: Self = serde_json::from_slice(&text)
            .map_err(|error| format!("{}: {error}: measure anew, without --resume", file.display()))?;
        Ok(Self { file, ..kept })
    }

    /// Writes down what was measured so far; in one step, because an interruption may come at any time.
    pub(crate) fn keep(&self) -> Result<(), Error> {
        let next = self.file.with_extension("json.next");
        fs::write(&next, serde_json::to_string(self)? + "\n")?;
        Ok(fs::rename(&next, &self.file)?)
    }

    /// All is measured: from now on these are the raw data.
    pub(crate) fn finish(self, raw: &Path) -> Result<(), Error> {
        fs::write(raw, serde_json::to_string(&self.results)? + "\n")?;
        Ok(fs::remove_file(&self.file)?)
    }
}

fn file(directory: &Path) -> PathBuf {
    directory.join("unfinished.json")
}
