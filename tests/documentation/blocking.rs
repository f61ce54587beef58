//! How long a killed function blocks others.

use lambda_lock::Tried;
use lambda_lock_testkit::{Table, case, millis, secs};
use tokio::time::{Instant, sleep, sleep_until};

/// The values in `docs/settings.md`: about 3 s and 5 % of the timeout.
const SAID: [(u64, f64); 3] = [(30, 4.6), (60, 6.1), (900, 48.0)];

#[tokio::test(start_paused = true)]
async fn a_function_killed_at_its_deadline_blocks_others_for_three_seconds_and_a_twentieth_of_its_timeout() {
    for (timeout, blocked) in SAID {
        let _case = case(format!("{timeout} s"));
        let table = Table::new();
        let (killed, next) = (table.process(), table.process());
        let timeout = secs(timeout);
        let deadline = Instant::now() + timeout;
        let budget = killed.budget(timeout);
        let lock = killed.locks("killed").acquire("k").within(&budget).await.unwrap();
        sleep_until(deadline).await;
        std::mem::forget(lock);
        // Each try is a new caller. It has observed nothing, so it decides by the end of the lease alone.
        let next_one = async || next.locks("next").acquire("k").lease(secs(20)).try_once().await.unwrap();

        let granted = loop {
            match next_one().await {
                Tried::Granted(lock) => break lock,
                Tried::Refused(_) => sleep(millis(50)).await,
            }
        };

        let measured = deadline.elapsed().as_secs_f64();
        assert!((measured - blocked).abs() < 0.2, "{measured} s, and not {blocked} s");
        granted.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_shorter_lease_with_checkpoints_blocks_for_less() {
    let table = Table::new();
    let killed = table.process();
    let budget = killed.budget(secs(900));
    let lease = secs(20);
    let mut lock = killed.locks("killed").acquire("k").within(&budget).lease(lease).await.unwrap();
    let killed_at = Instant::now() + secs(450);
    while Instant::now() < killed_at {
        sleep(secs(5)).await;
        lock.checkpoint().await.unwrap();
    }
    let last = Instant::now();
    std::mem::forget(lock);
    let waiting = table.process();

    let granted = waiting.locks("next").acquire("k").within(&waiting.budget(secs(120))).await.unwrap();

    // The waiter takes over by observation, which takes the lease and 5 %.
    assert!((last.elapsed().as_secs_f64() - 21.0).abs() < 0.2, "{:?}", last.elapsed());
    granted.release().await.unwrap();
}
