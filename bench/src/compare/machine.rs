//! Where a run took place, and what the system says of a process.

use crate::Error;
use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Linux counts CPU time in hundredths of a second, on every architecture (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// What a reader needs to know of the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) system: String,
    pub(crate) rust: String,
    pub(crate) java: String,
    pub(crate) go: String,
    pub(crate) python: String,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("an unknown CPU");
        Self {
            cpu: cpu.trim_start_matches(['\t', ' ', ':']).to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            system: said("uname", &["-sr"]),
            rust: said("rustc", &["--version"]),
            java: said("java", &["--version"]),
            go: said("go", &["version"]),
            python: said("python3", &["--version"]),
        }
    }
}

/// The first line that a program says.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or("missing").to_owned()
}

/// How many processes wanted to run, on average over the last minute: more than there are cores, and they
/// waited for each other.
pub(crate) fn load() -> f64 {
    let said = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    said.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default()
}

/// CPU time of a process and of all threads that it had, those that have ended included.
pub(crate) fn cpu(process: u32) -> Result<Duration, Error> {
    let said = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = said.rsplit_once(')').ok_or("the process has no name")?;
    // utime and stime are the 14th and 15th field of all, and the name was the second.
    let ticks: u32 = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>).sum::<Result<_, _>>()?;
    Ok(TICK * ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_cpu_of_a_process_that_works_grows() {
        let before = cpu(std::process::id()).unwrap();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            if cpu(std::process::id()).unwrap() > before + TICK {
                return;
            }
        }
        panic!("ten seconds of work, and no CPU was counted");
    }
}
