//! Counts how often rare and important events happened. A run without violations proves nothing if they never happened.

macro_rules! counts {
    ($($name:ident: $text:literal,)*) => {
        /// What happened in one simulation, or in all of them.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $(
                #[doc = $text]
                pub $name: u64,
            )*
        }

        impl Counts {
            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// 1 for each event that happened, otherwise 0.
            pub(crate) fn any(&self) -> Self {
                Self { $($name: self.$name.min(1),)* }
            }

            /// Each count with its description, in a fixed order.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$(($text, self.$name),)*]
            }
        }
    };
}

/// So many of the counts, the first ones, are of runs with sets and places. A crowd has neither.
pub const OF_SETS: usize = 13;

counts! {
    runs_with_sets: "runs with sets and places",
    sets_granted: "sets granted",
    sets_refused: "transactions refused, of sets and commits",
    set_conflicts: "transactions that met nothing but a conflict",
    single_conflicts: "single writes that met a transaction",
    transactions_again: "transactions that DynamoDB recognised",
    sets_unknown: "sets of unknown outcome",
    sets_reclaimed: "sets reclaimed",
    parts_lost: "locks of sets that were lost",
    set_commits: "commits under several locks",
    set_commits_resolved: "commits under several locks that a renewal resolved",
    places_granted: "places granted",
    places_full: "semaphores reported as full",
    grants: "grants applied",
    requests: "requests that reached the table",
    calls: "calls that ended",
    calls_disturbed: "calls in which the process was paused or its clocks were set",
    own_holders: "reclaims that ended while a holder of their own had the lock",
    shared_clients: "processes that share another one's client",
    crowds: "crowds of 8 to 16",
    sort_keys: "tables with a sort key",
    ttls: "tables with a TTL attribute",
    data: "calls that were to leave something in the row",
    attributes: "grants with other additional attributes than the row had",
    checks: "guards that said mine",
    budgets_until: "budgets that end by the wall clock",
    works_polled: "polls of works under a guard",
    kept_alive: "works that a guard kept alive",
    works_dropped: "works that were dropped because their lock was lost or over",
    with_lock: "works that ran with a lock",
    effects: "effects applied by the fenced resource",
    stale_effects: "stale effects refused by the fenced resource",
    takeovers: "holders taken over",
    takeovers_of_peers: "holders of other clients taken over",
    takeovers_by_peers: "takeovers by other clients",
    observations_carried: "takeovers by a carried observation",
    reclaims: "locks reclaimed from an earlier grant of the same holder",
    resumed: "locks resumed by another process",
    recovered_answers: "grants recognised after a lost answer",
    renewals: "renewals applied",
    unknown_renewals: "renewals of unknown outcome",
    applied_unheard: "renewals of unknown outcome that had been applied",
    adopted: "renewals refused by a newer version of the same grant",
    unknown_acquires: "acquires of unknown outcome",
    unknown_releases: "releases of unknown outcome",
    lost: "locks reported lost",
    held: "acquires refused because somebody else holds the lock",
    released: "releases applied",
    already_gone: "releases that found another grant",
    workflows_cleaned: "locks released for a workflow that ended",
    broken: "locks broken by an operator",
    tickets: "tickets given to callers who wait in line",
    brought_back: "tickets brought back by callers who slept between their calls",
    in_turn: "grants in turn, by ticket",
    left: "tickets that were given up",
    passed: "grants that passed somebody in line who did not come",
    frozen: "locks frozen by an operator",
    thawed: "frozen locks thawed",
    refused_as_frozen: "acquires refused because the lock is frozen",
    reclaimed_frozen: "frozen locks reclaimed by their holder",
    late_freezes: "freezes and thaws that arrived after their call had ended",
    duplicates: "late copies that reached the table",
    duplicates_after_release: "late copies that arrived after the grant was released",
    ghosts: "grants applied after their call had ended",
    ghosts_of_refused: "grants applied by a late copy of a request that had been refused",
    claims_applied_twice: "one request granted twice",
    throttled: "requests throttled",
    rejected: "requests rejected, by credentials or by codes that nobody knows",
    mute: "refusals that brought no row",
    strangers: "answers of something between client and DynamoDB",
    wrong_dates: "answers with a wrong date",
    spoiled: "rows that somebody wrote nonsense into",
    tokens_of_nonsense: "writes over a token that is no number of grants",
    invalid_records: "calls that found no lock record",
    denied: "calls that were denied",
    lost_requests: "requests lost",
    lost_answers: "answers lost",
    failures_after_apply: "failures said of requests that were applied",
    pauses: "pauses of a process",
    long_pauses: "pauses of a holder longer than its lease",
    freezes: "pauses in which the monotonic clock stood still",
    crashes: "crashes",
    cancelled: "calls cancelled",
    expired: "guards that found their lease run out",
    jumps: "wall clocks that were set",
    behind: "processes whose wall clock began up to two hours behind",
    fell_behind: "wall clocks that were set back by up to two hours",
    rows_deleted: "rows deleted by others",
    commits: "transactions applied",
    commits_sent_again: "transactions that DynamoDB recognised as applied before",
    commits_refused: "transactions refused because the lock was lost",
    commits_cancelled: "transactions cancelled by the caller's own writes",
    conflicts: "transactions of which others had an item",
    conflicts_mixed: "transactions of which others had the lock's item while the caller's writes were refused",
    commits_forgotten: "transactions that came again when DynamoDB had forgotten them",
    commits_carried: "transactions of unknown outcome that a written-down lock carried",
    twice_on_one_item: "transactions with two operations on one item",
    long_freezes: "processes frozen for minutes around a transaction",
    commits_unknown: "transactions of unknown outcome",
    commits_resolved: "transactions of unknown outcome that a renewal resolved",
    commits_indeterminate: "transactions of which nobody can tell any more",
    commits_by_late_copies: "cancelled transactions that a late copy applied after all",
    fenced: "transactions of callers that a fence let through",
    fenced_off: "transactions of callers that a fence refused",
    settled: "results of idempotent works stored",
    replayed: "results of idempotent works replayed",
    final_takeovers: "dead holders replaced within the bound after the faults stopped",
}
