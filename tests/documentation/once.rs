//! What happens when idempotent work is requested again.

use crate::LEASE;
use lambda_lock::Error;
use lambda_lock::once::Attempt;
use lambda_lock_testkit::{Table, applied, counted, secs};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_twice_does_its_work_once_under_once() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");

    for _ in 0..2 {
        let budget = process.budget(LEASE);
        let once = locks.once("order-42").within(&budget);
        let work = async |_: &mut Attempt| Ok::<_, Error>(("done".to_owned(), vec![counted("effect")]));
        assert_eq!(once.run_and_commit(work).await.unwrap().into_result(), "done");
    }

    assert_eq!(applied(&table, "effect"), 1);
}

#[tokio::test(start_paused = true)]
async fn work_that_is_done_again_has_another_fencing_token() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let mut tokens = Vec::new();

    for crashes in [true, false] {
        let budget = process.budget(LEASE);
        let work = async |attempt: &mut Attempt| {
            tokens.push(attempt.fencing_token());
            if crashes {
                std::future::pending::<()>().await;
            }
            Ok::<_, Error>(())
        };
        let run = locks.once("order-42").within(&budget).run(work);
        // A crashed attempt stores nothing. The next attempt takes over when the lease has ended.
        let _ = tokio::time::timeout(LEASE, run).await;
        sleep(secs(60)).await;
    }

    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "{tokens:?}");
}
