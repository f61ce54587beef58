//! The machine of a run, and what the system reports about a process.

use crate::Error;
use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// The facts about the machine that a reader needs.
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

/// The first line of a program's output.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or("missing").to_owned()
}

/// The average number of processes that wanted to run in the last minute. If it is larger than the number of cores,
/// they waited for each other.
pub(crate) fn load() -> f64 {
    let said = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    said.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default()
}

/// CPU time of a process with all its threads, including threads that have ended.
#[cfg(target_os = "linux")]
pub(crate) fn cpu(process: u32) -> Result<Duration, Error> {
    let process = nix::unistd::Pid::from_raw(process.try_into()?);
    Ok(nix::time::ClockId::pid_cpu_clock_id(process)?.now()?.into())
}

/// Other systems do not allow a process to read this of another process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn cpu(_: u32) -> Result<Duration, Error> {
    Err("the CPU time of other processes is known only on Linux: run this command there".into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_cpu_of_a_process_that_works_grows() {
        // It ends by itself if this test fails.
        let work = "i=0; while [ $i -lt 20000000 ]; do i=$((i+1)); done";
        let mut process = Command::new("sh").args(["-c", work]).spawn().unwrap();
        let began = Instant::now();
        let mut counted = Duration::ZERO;
        // More CPU time than this test process itself uses in the meantime.
        while counted < Duration::from_millis(100) && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
            counted = cpu(process.id()).unwrap();
        }
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(counted >= Duration::from_millis(100), "ten seconds of work, and of them {counted:?} were counted");
    }
}
