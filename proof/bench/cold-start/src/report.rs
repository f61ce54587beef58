//! The figures of a run in the form of `README.md`, to be pasted there.

use crate::Row;
use crate::build::Binary;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

/// The files with the roots that a function with defaults loads, on Linux distributions.
const ROOTS: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

pub(crate) fn markdown(binaries: &[Binary], rows: &[Row], starts: u32) -> String {
    format!("{}\n\n```text\n{}```\n", machine(starts), table_of_all(binaries, rows, starts))
}

fn machine(starts: u32) -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("an unknown CPU");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let roots = ROOTS.iter().find_map(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "{}, {}, {cores} cores, {}, {}, {} roots in the system's store, load at the end {}. `--starts {starts}`:",
        said("date", &["+%-d %B %Y"]),
        cpu.trim_start_matches(['\t', ' ', ':']),
        said("uname", &["-sr"]),
        said("rustc", &["--version"]),
        roots.matches("BEGIN CERTIFICATE").count(),
        load.split(' ').next().unwrap_or("unknown"),
    )
}

/// The first line of a program's output, in English.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or("unknown").to_owned()
}

fn table_of_all(binaries: &[Binary], rows: &[Row], starts: u32) -> String {
    let mut text =
        format!("{starts} cold starts of each function, interleaved: medians, and ratios with their 95 % intervals\n");
    for binary in binaries {
        let _ = writeln!(text, "  {:<14} {:>10} bytes", binary.name, binary.bytes);
    }
    for Row { what, unit, other, comparison, .. } in rows {
        let (ours, theirs, ratio) = (comparison.ours(), comparison.theirs(), comparison.ratio());
        let (low, high) = comparison.interval();
        let _ = writeln!(
            text,
            "{what:<31} lock-task {ours:9.2} {unit}   {other:<13} {theirs:9.2} {unit}   \
             ratio {ratio:.3} ({low:.3} to {high:.3})"
        );
    }
    text
}
