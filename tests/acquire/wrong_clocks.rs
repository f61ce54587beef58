//! Wrong clocks: the caller's own, and those in `Date` headers.

use crate::{LEASE, die_holding};
use lambda_lock::{ErrorKind, LockClient};
use lambda_lock_testkit::{Fault, Process, Table, acquired, case, granted, millis, secs};
use tokio::time::sleep;

const HOUR: i64 = 3600;

/// Lets the server contradict the wall clock of a process, in responses about another key.
async fn contradicted(process: &Process, locks: &LockClient, wrong_by: i64) {
    process.clock.jump_wall(wrong_by);
    for _ in 0..3 {
        locks.operator().peek("another").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_the_server_contradicts_is_not_used_against_others() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one"), LEASE).await;
    // Two's wall clock is a minute ahead. By that clock, one has been dead for long.
    two.clock.jump_wall(60_000);
    let locks = two.locks("two");
    // Any two responses show it. Here they are about another key.
    for _ in 0..2 {
        locks.operator().peek("another").await.unwrap();
    }

    let refused = locks.acquire("k").lease(LEASE).try_once().await.unwrap();
    assert!(refused.refused().is_some(), "a clock that is a minute off must not kill a living holder");

    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();

    // The end that it writes is not earlier than by its own clock, because the correction may be wrong.
    let two_now = two.clock.wall_millis();

    let lock = acquired(&locks, LEASE).await;
    let ends = table.number("k", "leaseEndsAt");
    assert!(ends.abs_diff(two_now + 20_000) <= 1_000, "{ends}");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_again_takes_no_lock_over() {
    for again in [60_000, 600_000] {
        let _case = case(format!("{again} ms"));
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let mut lock = acquired(&one.locks("one"), LEASE).await;
        let locks = two.locks("two");
        // The clock is contradicted and corrected. Then it jumps again before the next response.
        contradicted(&two, &locks, 60_000).await;
        two.clock.jump_wall(again);

        let tried = locks.acquire("k").lease(LEASE).try_once().await.unwrap();
        assert!(tried.granted().is_none(), "by its first request");

        two.clock.jump_wall(again);
        let waited = locks.acquire("k").within(&two.budget(secs(5))).await;
        assert!(waited.unwrap_err().is_held(), "by what it sends after a refusal");

        lock.checkpoint().await.unwrap();
        lock.release().await.unwrap();
    }
}

/// A client remembers what it wrote while its clock was ahead, for its own next acquire. It does so only for a moment.
mod a_corrected_clock_takes_over_no_living_holder_whatever_was_written_before {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_release() {
        check("release").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_commit_and_release() {
        check("commit and release").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_of_the_workflow() {
        check("workflow").await;
    }

    async fn check(given_back: &str) {
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let mut lock = acquired(&one.locks("one"), LEASE).await;
        two.set_date_offset(None);
        let locks = two.locks("two");
        two.clock.jump_wall(60_000);
        let other = granted(locks.acquire("another").workflow("arn:1").lease(LEASE).try_once()).await;
        match given_back {
            "release" => drop(other.release().await.unwrap()),
            "commit and release" => other.commit_and_release([]).await.unwrap(),
            _ => {
                let _ = other.save();
                locks.release_workflow("another", "arn:1").await.unwrap();
            }
        }
        two.clock.jump_wall(-60_000);

        let tried = locks.acquire("k").lease(LEASE).try_once().await.unwrap();
        assert!(tried.granted().is_none());
        assert!(locks.acquire("k").within(&two.budget(secs(5))).await.unwrap_err().is_held());

        lock.checkpoint().await.unwrap();
        // What it writes afterwards is right too.
        let now = two.clock.wall_millis();

        let third = granted(locks.acquire("third").lease(LEASE).try_once()).await;
        let ends = table.number("third", "leaseEndsAt");
        assert!((now + 20_000..=now + 20_020).contains(&ends), "{ends} at {now}");
        third.release().await.unwrap();
        lock.release().await.unwrap();
    }
}

/// A release may write an end that is a few milliseconds ahead of the clock. The client's next Claim then uses that end
/// as its time. If a wrong clock was ahead by more than that and is right again, the next lease must end at the right
/// time.
#[tokio::test(start_paused = true)]
async fn after_a_small_correction_of_the_clock_a_lease_ends_at_the_right_time() {
    for ahead in [25, 100, 1_500] {
        let _case = case(format!("{ahead} ms"));
        let table = Table::new();
        let process = table.process();
        process.set_date_offset(None);
        let locks = process.locks("me");
        process.clock.jump_wall(ahead);
        acquired(&locks, LEASE).await.release().await.unwrap();
        process.clock.jump_wall(-ahead);
        let now = process.clock.wall_millis();

        let lock = granted(locks.acquire("another").lease(LEASE).try_once()).await;

        let ends = table.number("another", "leaseEndsAt");
        assert!((now + 20_000..=now + 20_020).contains(&ends), "{ends} at {now}");
        lock.release().await.unwrap();
    }
}

/// A response that takes long has an old date when it arrives. That does not show that the clock is wrong. This also
/// holds if the process was frozen meanwhile, so that only its wall clock counted the time.
#[tokio::test(start_paused = true)]
async fn a_slow_answer_does_not_make_the_clock_look_wrong() {
    for frozen in [false, true] {
        for (there, back) in [(0, 9), (9, 0), (5, 5)] {
            let _case = case(format!("frozen: {frozen}, {there} s there, {back} s back"));
            let table = Table::new();
            let (one, two) = (table.process(), table.process());
            die_holding(&one.locks("one"), secs(1)).await;
            let locks = two.builder().owner("two").request_timeout(secs(30)).build().unwrap();
            for _ in 0..3 {
                // The round trip takes this long in both directions.
                two.next([Fault::SlowBothWays(secs(there), secs(back))]);
                let read = async { locks.operator().peek("another").await.map(drop) };
                if frozen {
                    tokio::join!(read, two.clock.freeze(secs(there + back))).0.unwrap();
                } else {
                    read.await.unwrap();
                }
            }
            two.take_sent();

            let lock = locks.acquire("k").lease(LEASE).try_once().await.unwrap().granted();

            assert!(lock.is_some(), "the dead are taken over by the wall clock as before");
            assert_eq!(two.take_operations(), ["UpdateItem"]);
            lock.unwrap().release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_dates_do_not_make_a_living_holder_look_dead() {
    for wrong in 1..=4 {
        for off in [-HOUR, HOUR] {
            let _case = case(format!("{wrong} dates, {off} s off"));
            let table = Table::new();
            let (one, two) = (table.process(), table.process());
            let locks = one.locks("one");
            one.next(vec![Fault::DateOff(off); wrong]);
            for _ in 0..wrong {
                locks.operator().peek("another").await.unwrap();
            }
            let now = one.clock.wall_millis();
            one.take_sent();

            let lock = acquired(&locks, LEASE).await;
            assert_eq!(one.take_operations(), ["UpdateItem"], "its end is right from its first write on");

            let tried = two.locks("two").acquire("k").lease(LEASE).try_once().await.unwrap();
            assert!(tried.granted().is_none(), "granted to two holders");
            assert!(!lock.remaining().is_zero());
            let ends = table.number("k", "leaseEndsAt");
            assert!(ends >= now + 20_000, "{ends}");
            lock.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_date_that_is_not_dynamodbs_own_is_ignored() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = acquired(&one.locks("one"), secs(3)).await;
    let _ = lock.save();
    sleep(secs(10)).await;
    // A proxy in between responds, with its own clock.
    two.next(vec![Fault::Foreign(503, HOUR); 100]);
    let locks = two.locks("two");
    assert!(locks.operator().peek("another").await.unwrap_err().is_unknown());
    two.clear();
    two.take_sent();

    let lock = acquired(&locks, LEASE).await;

    assert_eq!(two.take_operations(), ["UpdateItem"], "the wall clock is trusted: one request takes over");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_wrong_date_does_not_disable_takeover_by_wall_clock_for_ever() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = acquired(&one.locks("one"), secs(3)).await;
    let _ = lock.save();
    sleep(secs(10)).await;
    let locks = two.locks("two");
    two.next([Fault::DateOff(HOUR)]);
    locks.operator().peek("another").await.unwrap();
    locks.operator().peek("another").await.unwrap();

    acquired(&locks, LEASE).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_wrong_dates_that_differ_by_minutes_do_not_agree() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = acquired(&one.locks("one"), secs(3)).await;
    let _ = lock.save();
    sleep(secs(10)).await;
    let locks = two.locks("two");
    two.next([Fault::DateOff(HOUR), Fault::DateOff(HOUR - 300)]);
    for _ in 0..3 {
        locks.operator().peek("another").await.unwrap();
    }
    two.take_sent();

    let lock = acquired(&locks, LEASE).await;

    assert_eq!(two.take_operations(), ["UpdateItem"], "the wall clock is trusted: one request takes over");
    lock.release().await.unwrap();
}

/// A wall clock that is an hour behind, as after a restore from a snapshot. The end of a lease that it writes has passed
/// for everybody else.
mod a_lease_written_by_a_clock_that_is_behind_is_renewed_before_anybody_relies_on_it {
    use super::*;

    const AN_HOUR_BACK: i64 = -3_600_000;

    /// A process whose clock is behind, and one whose clock is right.
    fn processes(table: &Table) -> (Process, Process) {
        let (behind, right) = (table.process(), table.process());
        behind.clock.jump_wall(AN_HOUR_BACK);
        (behind, right)
    }

    async fn nobody_takes(table: &Table, right: &Process) {
        assert!(table.number("k", "leaseEndsAt") >= right.clock.wall_millis() + 19_900);
        sleep(secs(1)).await;
        let tried = right.locks("right").acquire("k").lease(LEASE).try_once().await.unwrap();
        assert!(tried.granted().is_none(), "granted to two holders");
    }

    #[tokio::test(start_paused = true)]
    async fn by_a_try() {
        let table = Table::new();
        let (behind, right) = processes(&table);
        let locks = behind.locks("behind");

        let lock = granted(locks.acquire("k").lease(LEASE).try_once()).await;

        assert_eq!(behind.take_operations(), ["UpdateItem", "UpdateItem"], "granted, and renewed");
        nobody_takes(&table, &right).await;
        assert!(!lock.remaining().is_zero());
        lock.release().await.unwrap();
        granted(locks.acquire("k").lease(LEASE).try_once()).await.release().await.unwrap();
        assert_eq!(behind.take_operations().len(), 3, "later grants are right from their first write on");
    }

    #[tokio::test(start_paused = true)]
    async fn by_a_grant_whose_response_was_lost() {
        let table = Table::new();
        let (behind, right) = processes(&table);
        behind.next([Fault::AnswerLost]);

        let lock = acquired(&behind.locks("behind"), LEASE).await;

        assert_eq!(behind.take_operations(), ["UpdateItem", "GetItem", "UpdateItem"]);
        nobody_takes(&table, &right).await;
        lock.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn by_a_resume() {
        let table = Table::new();
        let (behind, right) = processes(&table);
        let saved = acquired(&right.locks("right"), LEASE).await.save();
        sleep(secs(10)).await;

        let lock = behind.locks("behind").resume(saved).await.unwrap();

        assert_eq!(behind.take_operations(), ["UpdateItem", "UpdateItem"], "renewed twice");
        nobody_takes(&table, &right).await;
        lock.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn by_a_reclaim() {
        let table = Table::new();
        let (behind, right) = processes(&table);
        let saved = acquired(&right.locks("right"), LEASE).await.save();

        let lock = behind.locks("behind").reclaim(saved).lease(LEASE).await.unwrap();

        assert_eq!(behind.take_operations(), ["UpdateItem", "UpdateItem"]);
        nobody_takes(&table, &right).await;
        lock.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn but_not_where_an_earlier_response_has_shown_the_time() {
        let table = Table::new();
        let (behind, right) = processes(&table);
        let locks = behind.locks("behind");
        locks.operator().peek("another").await.unwrap();
        behind.take_sent();

        let lock = acquired(&locks, LEASE).await;

        assert_eq!(behind.take_operations(), ["UpdateItem"]);
        nobody_takes(&table, &right).await;
        lock.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn and_whoever_lost_it_in_between_is_told_to_ask_again() {
        let table = Table::new();
        let (behind, right) = processes(&table);
        behind.next([Fault::None, Fault::SlowBothWays(millis(500), millis(0))]);
        let (late, early) = (behind.locks("behind"), right.locks("right"));

        let (refused, taken) = tokio::join!(async { late.acquire("k").lease(LEASE).try_once().await }, async {
            sleep(millis(300)).await;
            granted(early.acquire("k").lease(LEASE).try_once()).await
        });

        assert!(refused.unwrap_err().is_unknown());
        assert!(!taken.remaining().is_zero());
        taken.release().await.unwrap();
    }
}

/// A clock that is behind by less than a lease. Nobody relies on a lease for longer than others respect its written end.
#[tokio::test(start_paused = true)]
async fn a_guard_ends_before_others_take_over_however_far_its_clock_is_behind_and_however_slow_the_response() {
    for behind_ms in [1_900, 4_000, 9_000, 19_000, 30_000] {
        for (there, back) in [(0, 0), (0, 3), (6, 6)] {
            let _case = case(format!("{behind_ms} ms behind, {there} s there, {back} s back"));
            let table = Table::new();
            let (behind, right) = (table.process(), table.process());
            behind.clock.jump_wall(-behind_ms);
            let locks = behind.builder().owner("behind").request_timeout(secs(30)).build().unwrap();
            behind.next([Fault::SlowBothWays(secs(there), secs(back))]);
            let lock = granted(locks.acquire("k").lease(LEASE).try_once()).await;
            let others = right.locks("right");

            while !lock.remaining().is_zero() {
                let tried = others.acquire("k").lease(LEASE).try_once().await.unwrap();
                assert!(tried.granted().is_none(), "granted to two holders, {:?} left", lock.remaining());
                sleep(millis(400)).await;
            }
            let _ = lock.save();
        }
    }
}

/// DynamoDB refuses signatures that are older than five minutes. The SDK signs its next request by the time in the
/// refusal.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_shows_a_clock_wrong_by_minutes_is_followed_by_one_more_request() {
    for (wrong_by, refusals, requests, is_granted) in [
        (-3_600_000, 1, 2, true),
        (600_000, 1, 2, true),
        (-600_000, 2, 2, false),
        (-60_000, 1, 1, false),
        (0, 1, 1, false),
    ] {
        for code in ["InvalidSignatureException", "AccessDeniedException"] {
            let _case = case(format!("{wrong_by} ms off, {code} {refusals} times"));
            let table = Table::new();
            let process = table.process();
            process.clock.jump_wall(wrong_by);
            process.next(vec![Fault::error(code); refusals]);

            let tried = process.locks("me").acquire("k").lease(LEASE).try_once().await;

            assert_eq!(process.take_operations().len(), requests);
            assert_eq!(tried.is_ok(), is_granted);
            match tried {
                Ok(tried) => drop(tried.granted().unwrap().release().await.unwrap()),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Denied, "{error}"),
            }
        }
    }
}
