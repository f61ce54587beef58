//! The session on the command's page, played as it stands there.

use crate::golden::redactions;
use crate::place::{Place, end};
use regex::Regex;
use std::path::Path;
use tokio::process::Command;

/// The commands of the page and what they print.
fn steps(page: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap_or_default().lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push((command.to_owned(), String::new())),
                (None, Some((_, printed))) => *printed += &format!("{line}\n"),
                (None, None) => panic!("a block begins without a command: {line}"),
            }
        }
    }
    steps
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_what_the_command_prints() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command.md")).unwrap();
    let steps = steps(&page);
    assert!(steps.len() > 5, "{steps:?}");
    let place = Place::new().await;
    let version = Regex::new("ll1-[0-9A-Za-z-]+").unwrap();
    let mut seen = String::new();
    for (line, printed) in steps {
        // The version that the commands before have printed, in the place of the page's.
        let line = version.replace_all(&line, &seen);
        let ended = end(shell(&place, "sh").args(["-c", &format!("{{ {line}; }} 2>&1")])).await;
        if let Some(found) = version.find(&ended.out) {
            seen = found.as_str().to_owned();
        }
        let [shown, actual] = [&printed, &ended.out].map(|text| redactions().redact(text));
        assert_eq!(actual, shown, "{line}");
    }
}

/// A shell that finds the command, in a directory of its own.
pub(crate) fn shell(place: &Place, shell: &str) -> Command {
    let command = place.command();
    let binaries = Path::new(env!("CARGO_BIN_EXE_lambda-lock")).parent().unwrap();
    let others = std::env::var_os("PATH").unwrap();
    let path =
        std::env::join_paths(std::iter::once(binaries.to_owned()).chain(std::env::split_paths(&others))).unwrap();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("session");
    std::fs::create_dir_all(&directory).unwrap();
    // As in a clone, which may have moved since.
    if !directory.join("docs").exists() {
        let _ = std::fs::remove_file(directory.join("docs"));
    }
    let _ =
        std::os::unix::fs::symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs"), directory.join("docs"));
    let mut shell = Command::new(shell);
    shell.env_clear().envs(command.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("PATH", path).current_dir(directory).kill_on_drop(true);
    shell
}
