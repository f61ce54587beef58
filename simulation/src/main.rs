//! `cargo sim`.
#![allow(clippy::print_stdout)]
use lambda_lock_simulation::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let n: u64 = args[1].parse().unwrap();
    let t = std::time::Instant::now();
    let mut total = Counts::default();
    if args.len() > 2 {
        let run = run(n, Options { trace: true, fenced: true });
        for l in run.trace {
            println!("{l}");
        }
        println!("{:?}", run.violation);
        return;
    }
    let mut v = std::collections::BTreeMap::new();
    for seed in 0..n {
        let run = run(seed, Options::default());
        total.add(&run.counts);
        if let Some(violation) = run.violation {
            let e = v.entry(violation.invariant).or_insert((0, seed, violation.what.clone()));
            e.0 += 1;
        }
    }
    for (t, n) in total.list() {
        println!("{n:>10} {t}");
    }
    for (i, e) in v {
        println!("{i:?} {e:?}");
    }
    println!("{:?}, {} per s", t.elapsed(), n as f64 / t.elapsed().as_secs_f64());
}
