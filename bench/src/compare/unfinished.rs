//! A run that is not finished. It is stored in a file after each part, so that an interruption does not lose the parts.

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
    /// A new run. It replaces one that was interrupted.
    pub(crate) fn new(directory: &Path, settings: Settings, results: Results) -> Self {
        Self { file: file(directory), settings, results }
    }

    /// The interrupted run with its own settings.
    pub(crate) fn interrupted(directory: &Path) -> Result<Self, Error> {
        let file = file(directory);
        let text = fs::read(&file)
            .map_err(|error| format!("there is no interrupted run to go on with: {}: {error}", file.display()))?;
        let kept: Self = serde_json::from_slice(&text)
            .map_err(|error| format!("{}: {error}: measure anew, without --resume", file.display()))?;
        Ok(Self { file, ..kept })
    }

    /// Stores the measurements so far in one step, because an interruption may come at any time.
    pub(crate) fn keep(&self) -> Result<(), Error> {
        let next = self.file.with_extension("json.next");
        fs::write(&next, serde_json::to_string(self)? + "\n")?;
        Ok(fs::rename(&next, &self.file)?)
    }

    /// Everything is measured. The file becomes the raw data.
    pub(crate) fn finish(self, raw: &Path) -> Result<(), Error> {
        fs::write(raw, serde_json::to_string(&self.results)? + "\n")?;
        Ok(fs::remove_file(&self.file)?)
    }
}

fn file(directory: &Path) -> PathBuf {
    directory.join("unfinished.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Asked {
        #[command(flatten)]
        settings: Settings,
    }

    #[test]
    fn an_interrupted_run_continues_with_its_settings_and_measurements() {
        let directory = std::env::temp_dir().join(format!("lambda-lock-bench-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let nothing = Unfinished::interrupted(&directory).map(drop).unwrap_err();
        assert!(nothing.to_string().contains("no interrupted run"), "{nothing}");

        let settings = Asked::parse_from(["compare", "--contenders", "3,5"]).settings;
        let mut run = Unfinished::new(&directory, settings, Results::none("today".to_owned()));
        run.results.load.push(0.5);
        run.keep().unwrap();
        let resumed = Unfinished::interrupted(&directory).unwrap();
        assert_eq!(serde_json::to_value(&resumed).unwrap(), serde_json::to_value(&run).unwrap());

        resumed.finish(&directory.join("raw.json")).unwrap();
        let left: Vec<_> = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, ["raw.json"]);
        fs::remove_dir_all(&directory).unwrap();
    }
}
