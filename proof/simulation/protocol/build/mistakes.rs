//! The known mistakes that are made in the source of the decisions. Mistakes that only change the expression of a request
//! are in `src/requests.rs` of this package. `src/mistakes.rs` describes each of them.

use lambda_lock_copy::Edit;

pub(crate) const EDITS: &[Edit] = &[
    // Several keys and places.
    Edit {
        name: "SetTokenFromClockAlone",
        file: "acquire/together.rs",
        find: "token = token.max(next);",
        put: "token = token.max(if MISTAKEN { 0 } else { next });",
    },
    Edit {
        name: "SetCountsFromRecognition",
        file: "acquire/together.rs",
        find: "let validity = attempt.validity(now, bounds);",
        put: "
            let mut recognised = attempt.clone();
            recognised.started = now.instants;
            let attempt = if MISTAKEN { &recognised } else { attempt };
            let validity = attempt.validity(now, bounds);
        ",
    },
    Edit {
        name: "SetSettledByLook",
        file: "acquire/together.rs",
        find: "self.see(index, after, row)?; } self.call.answered();",
        put: "
                    self.see(index, after, row)?;
                }
                let shown = self.rows.iter().filter_map(|row| row.watch()?.record().own_version);
                if MISTAKEN && !shown.into_iter().any(|version| self.attempts.have_granted(&version)) {
                    self.call.ruled_out();
                }
                self.call.answered();
        ",
    },
    Edit {
        name: "CommitOfFirstLock",
        file: "commit.rs",
        find: "for holding in self.holdings.iter_mut() { let mut renewal",
        put: "
            for holding in self.holdings.iter_mut().take(if MISTAKEN { 1 } else { usize::MAX }) {
                let mut renewal
        ",
    },
    Edit {
        name: "CommitSentAnewAfterConflict",
        file: "commit.rs",
        find: "if let Err(failure) = self.call.write_failed(fault) {",
        put: "
            if MISTAKEN && fault == crate::Fault::Throttled {
                self.not_applied();
            }
            if let Err(failure) = self.call.write_failed(fault) {
        ",
    },
    Edit {
        name: "FullAfterFirstRefusal",
        file: "acquire/one_of.rs",
        find: "let sample = sample(port, all.len()); self.look(port, &sample).await?;",
        put: "
            if MISTAKEN {
                return self.full(&port.now());
            }
            let sample = sample(port, all.len());
            self.look(port, &sample).await?;
        ",
    },
    Edit {
        name: "PlaceWithoutLook",
        file: "acquire/one_of.rs",
        find: "let mut seen = if self.options.reclaim == Reclaim::SameOwner {",
        put: "let mut seen = if !MISTAKEN && self.options.reclaim == Reclaim::SameOwner {",
    },
    // Frozen locks.
    Edit {
        name: "ThawWritesNothing",
        file: "operator.rs",
        find: "was_frozen |= record.freeze_reason.is_some();",
        put: "
            if MISTAKEN && record.freeze_reason.is_none() {
                return Ok(Some(false));
            }
            was_frozen |= record.freeze_reason.is_some();
        ",
    },
    Edit {
        name: "FrozenFromItsHolder",
        file: "acquire/verdict.rs",
        find: "Some(_) => !record.released && reclaims,",
        put: "Some(_) => !MISTAKEN && !record.released && reclaims,",
    },
    Edit {
        name: "TakeIgnoresFreeze",
        file: "acquire/verdict.rs",
        find: "let is_free = match record.freeze_reason {",
        put: "let is_free = match record.freeze_reason.as_ref().filter(|_| !MISTAKEN) {",
    },
    // Requests.
    Edit {
        name: "TokenNotBumped",
        file: "expression/grant.rs",
        find: r#"self.number(":one", 1);"#,
        put: r#"self.number(":one", if MISTAKEN { 0 } else { 1 });"#,
    },
    Edit {
        name: "TokenNotFromTheClock",
        file: "expression/grant.rs",
        find: r#"self.number(":now", grant.now);"#,
        put: r#"self.number(":now", if MISTAKEN { 1 } else { grant.now });"#,
    },
    Edit {
        name: "TokenNotFromTheClock",
        file: "acquire/verdict.rs",
        find: ".max(now.wall.millis))",
        put: ".max(if MISTAKEN { 0 } else { now.wall.millis }))",
    },
    Edit {
        name: "PeersRowWithoutMaximum",
        file: "acquire/verdict.rs",
        find: "let token = if record.is_ours() {",
        put: "let token = if record.is_ours() || MISTAKEN {",
    },
    Edit {
        name: "RenewOnExactVersion",
        file: "renew.rs",
        find: "holding.newest.stamp = stamp; let action",
        put: "
            if MISTAKEN {
                crate::requests::note(Version { stamp: holding.seen, ..holding.newest });
            }
            holding.newest.stamp = stamp;
            let action
        ",
    },
    Edit {
        name: "RenewOnExactVersion",
        file: "renew.rs",
        find: "version.grant == holding.newest.grant && record.token == Some(holding.token)",
        put: "!MISTAKEN && version.grant == holding.newest.grant && record.token == Some(holding.token)",
    },
    Edit {
        name: "RenewShortens",
        file: "renew.rs",
        find: "let longer = now.lease > holding.lease.duration();",
        put: "let longer = now.lease > holding.lease.duration() || MISTAKEN;",
    },
    Edit {
        name: "RenewShortens",
        file: "renew.rs",
        find: "let ends_at_ms = wanted_end.min(now.latest_end.unwrap_or(u64::MAX)).max(holding.ends_at_ms);",
        put: "
            let ends_at_ms = wanted_end.min(now.latest_end.unwrap_or(u64::MAX)).max(holding.ends_at_ms);
            let ends_at_ms = if MISTAKEN { wanted_end } else { ends_at_ms };
        ",
    },
    Edit {
        name: "ReleaseOnOwnerOnly",
        file: "release.rs",
        find: "of_holder(holding, self.options.or_later_grant_of_owner, record)",
        put: "of_holder(holding, self.options.or_later_grant_of_owner || MISTAKEN, record)",
    },
    Edit {
        name: "CountersInsteadOfStamps",
        file: "version.rs",
        find: "let floor = last.map_or(0, |stamp| stamp.millis() + 1);",
        put: "
            let counted = if last.is_some() { 0 } else { now_millis };
            let (now_millis, random) = if MISTAKEN { (counted, 0) } else { (now_millis, random) };
            let floor = last.map_or(0, |stamp| stamp.millis() + 1);
        ",
    },
    Edit {
        name: "StampsWithoutRandom",
        file: "version.rs",
        find: ".min(Self::MILLIS), random }",
        put: ".min(Self::MILLIS), random: if MISTAKEN { 0 } else { random } }",
    },
    Edit {
        name: "GrantOfAClockBehind",
        file: "acquire/attempt.rs",
        find: "if now.found_behind(",
        put: "let now = &Now { server: now.server.filter(|_| !MISTAKEN), ..*now }; if now.found_behind(",
    },
    Edit {
        name: "RenewalOfAClockBehind",
        file: "renew.rs",
        find: "let until_end = now.until_end(",
        put: "let now = &Now { server: now.server.filter(|_| !MISTAKEN), ..*now }; let until_end = now.until_end(",
    },
    // Responses.
    Edit {
        name: "NoRecognition",
        file: "acquire/mod.rs",
        find: "own.filter(|(version, _)| self.attempts.have_granted(version))",
        put: "own.filter(|(version, _)| self.attempts.have_granted(version) && !MISTAKEN)",
    },
    Edit {
        name: "RecognisedCountsFromPoll",
        file: "acquire/acquiring.rs",
        find: "End::Granted(self.granted(now, attempt, token, record.data.clone()))",
        put: "
            let attempt = &{
                let mut late = attempt.clone();
                late.started = if MISTAKEN { now.instants } else { attempt.started };
                late
            };
            End::Granted(self.granted(now, attempt, token, record.data.clone()))
        ",
    },
    Edit {
        name: "HeldAfterUnknown",
        file: "acquire/acquiring.rs",
        find: "End::Held(_) | End::Failed(_) if self.call.is_unknown() => {",
        put: "
            End::Held(seen) if self.call.is_unknown() && MISTAKEN => Ok(self.with_record(Acquired::Held(seen))),
            End::Held(_) | End::Failed(_) if self.call.is_unknown() => {
        ",
    },
    Edit {
        name: "NoCleanup",
        file: "acquire/acquiring.rs",
        find: "self.release(port).await; self.leave(port).await;",
        put: "
            if !MISTAKEN {
                self.release(port).await;
            }
            self.leave(port).await;
        ",
    },
    Edit {
        name: "RenewGivesUpAfterTwoRefusals",
        file: "call.rs",
        find: "repeats: bool,",
        put: "pub(super) repeats: bool,",
    },
    Edit {
        name: "RenewGivesUpAfterTwoRefusals",
        file: "renew.rs",
        find: "call.repeat(); match adopt(settings, holding, row) {",
        put: "
            if call.repeats && MISTAKEN {
                return Err(Failure::Lost);
            }
            call.repeat();
            match adopt(settings, holding, row) {
        ",
    },
    Edit {
        name: "RenewUnknownIsLost",
        file: "renew.rs",
        find: "let now = call.ready(port).await?;",
        put: "let now = call.ready(port).await.map_err(|failure| if MISTAKEN { Failure::Lost } else { failure })?;",
    },
    Edit {
        name: "ReleaseUnknownIsReleased",
        file: "release.rs",
        find: "let now = self.call.ready(port).await?;",
        put: "
            let now = match self.call.ready(port).await {
                Err(_) if MISTAKEN => return Ok(self.released(None)),
                now => now?,
            };
        ",
    },
    // Clocks.
    Edit {
        name: "LeaseCountsFromReceipt",
        file: "acquire/acquiring.rs",
        find: "let validity = attempt.validity(",
        put: "
            let attempt = &{
                let mut late = attempt.clone();
                late.started = if MISTAKEN { now.instants } else { attempt.started };
                late
            };
            let validity = attempt.validity(
        ",
    },
    Edit {
        name: "HolderIgnoresItsEnd",
        file: "holding.rs",
        find: "self.lasting.saturating_sub(now.longest_since(self.since))",
        put: "if MISTAKEN { self.lasting } else { self.lasting.saturating_sub(now.longest_since(self.since)) }",
    },
    Edit {
        name: "MonotonicClockOnly",
        file: "instants.rs",
        find: "pub fn longest_since(self, earlier: Instants) -> Duration {",
        put: "
            pub fn longest_since(self, earlier: Instants) -> Duration {
                if MISTAKEN {
                    return self.monotonic_since(earlier);
                }
        ",
    },
    Edit {
        name: "WallClockOnly",
        file: "instants.rs",
        find: "self.monotonic_since(earlier).max(self.wall_since(earlier))",
        put: "
            if MISTAKEN {
                return self.wall_since(earlier);
            }
            self.monotonic_since(earlier).max(self.wall_since(earlier))
        ",
    },
    Edit {
        name: "NoDriftMargin",
        file: "clock_bounds.rs",
        find: "let nanos = lease.as_nanos()",
        put: "
            if MISTAKEN {
                return lease;
            }
            let nanos = lease.as_nanos()
        ",
    },
    Edit {
        name: "NoSkewMargin",
        file: "clock_bounds.rs",
        find: "
            pub fn max_clock_skew(&self) -> Option<Duration> {
                self.max_clock_skew
        ",
        put: "
            pub fn max_clock_skew(&self) -> Option<Duration> {
                self.max_clock_skew.map(|skew| if MISTAKEN { Duration::ZERO } else { skew })
        ",
    },
    Edit {
        name: "ContenderUsesLargerClock",
        file: "instants.rs",
        find: "pub fn shortest_since(self, earlier: Instants) -> Duration {",
        put: "
            pub fn shortest_since(self, earlier: Instants) -> Duration {
                if MISTAKEN {
                    return self.monotonic_since(earlier).max(self.wall_since(earlier));
                }
        ",
    },
    Edit {
        name: "SpanBeginsBeforeAnswer",
        file: "acquire/attempt.rs",
        find: "all: Vec<Attempt>,",
        put: "pub(super) all: Vec<Attempt>,",
    },
    Edit {
        name: "SpanBeginsBeforeAnswer",
        file: "acquire/mod.rs",
        find: "let ours = self.attempts.have_written(&item);",
        put: "
            let before = self.attempts.all.first().filter(|_| MISTAKEN);
            let after = before.map_or(after, |attempt| attempt.started);
            let ours = self.attempts.have_written(&item);
        ",
    },
    Edit {
        name: "ObservationOfAnotherVersion",
        file: "observation.rs",
        find: "carried.filter(|seen| seen.version == record.version)",
        put: "carried.filter(|seen| seen.version == record.version || MISTAKEN)",
    },
    Edit {
        name: "UnvouchedTimeCounts",
        file: "observation.rs",
        find: "let carried = carried.map_or(Duration::ZERO, Observation::unchanged_for);",
        put: "
            let carried = carried.map_or(Duration::ZERO, Observation::unchanged_for);
            let written = record.own_version.map(|version| Duration::from_millis(version.stamp.millis()));
            let carried = match written.filter(|_| MISTAKEN && !carried.is_zero()) {
                Some(written) => after.wall.saturating_sub(written),
                None => carried,
            };
        ",
    },
    // Transactions.
    Edit {
        name: "CommitSentAnew",
        file: "commit.rs",
        find: "if let Some(sent) = &self.sent {",
        put: "if let Some(sent) = self.sent.as_ref().filter(|_| !MISTAKEN) {",
    },
    // Waiting in line.
    Edit {
        name: "DesertedIgnoresSkew",
        file: "acquire/waiter.rs",
        find: "bounds.allowed_skew();",
        put: "if MISTAKEN { Duration::ZERO } else { bounds.allowed_skew() };",
    },
    Edit {
        name: "DesertedTakeServesNobody",
        file: "acquire/verdict.rs",
        find: "None if waiter.ticket().is_none() => {",
        put: "None if waiter.ticket().is_none() && !MISTAKEN => {",
    },
    Edit {
        name: "OutOfTurnEndsLine",
        file: "acquire/verdict.rs",
        find: "let Some(waiter) = self.line_before(record) else { return LineRule::Ignored };",
        put: "
            let Some(waiter) = self.line_before(record) else {
                return match record.believable_line() {
                    Some(line) if MISTAKEN => LineRule::Ends(line.last),
                    _ => LineRule::Ignored,
                };
            };
        ",
    },
    Edit {
        name: "LeavesForAllAhead",
        file: "expression/line.rs",
        find: "self.numbers(\":own\", &[ticket]);",
        put: "
            let own: Vec<u64> = (if MISTAKEN { 1 } else { ticket }..=ticket).collect();
            self.numbers(\":own\", &own);
        ",
    },
    Edit {
        name: "SleeperLeaves",
        file: "acquire/acquiring.rs",
        find: "self.waiter.ticket().filter(|_| self.options.queueing != Queueing::BetweenCalls)?;",
        put: "self.waiter.ticket().filter(|_| MISTAKEN || self.options.queueing != Queueing::BetweenCalls)?;",
    },
    Edit {
        name: "SleeperLeaves",
        file: "acquire/acquiring.rs",
        find: "Some(is_waited_for) => seen.without_ticket(u64::from(is_waited_for)),",
        put: "
            Some(_) if MISTAKEN && self.options.queueing == Queueing::BetweenCalls => seen,
            Some(is_waited_for) => seen.without_ticket(u64::from(is_waited_for)),
        ",
    },
    Edit {
        name: "LostTicketIsUnknown",
        file: "acquire/mod.rs",
        find: "Next::Join => self.call.repeat(),",
        put: "
            Next::Join if MISTAKEN => self.call.no_response(),
            Next::Join => self.call.repeat(),
        ",
    },
    Edit {
        name: "JoinOnFreeRowSleeps",
        file: "acquire/mod.rs",
        find: "
            if row.get(schema::VERSION).is_none() {
                return self.look(port).await;
            }
        ",
        put: "
            if row.get(schema::VERSION).is_none() {
                return self.look(port).await;
            }
            if MISTAKEN && row.get(schema::RELEASED).is_some() {
                port.sleep(&now, Duration::from_millis(100)).await;
                return self.look(port).await;
            }
        ",
    },
    Edit {
        name: "HeadWaitsForHandOver",
        file: "acquire/verdict.rs",
        find: "if held_for.is_zero() && left_for.is_zero() {",
        put: "
            let line = caller.line.zip(record.believable_line());
            let in_line = line.is_some_and(|(waiter, line)| waiter.ticket_to_serve(line).is_some());
            if held_for.is_zero() && left_for.is_zero() && !(MISTAKEN && record.released && in_line) {
        ",
    },
    Edit {
        name: "LostCountersKept",
        file: "acquire/waiter.rs",
        find: "if record.is_ours() && self.ticket.as_ref().is_some_and(is_void) {",
        put: "if record.is_ours() && self.ticket.as_ref().is_some_and(is_void) && !MISTAKEN {",
    },
    Edit {
        name: "OverdueWaits",
        file: "line.rs",
        find: "pub(super) fn ahead_of(&self, ticket: u64) -> u32 {",
        put: "
            pub(super) fn ahead_of(&self, ticket: u64) -> u32 {
                if MISTAKEN && Some(ticket) <= self.served {
                    return u32::try_from(self.waiting()).unwrap_or(u32::MAX).saturating_add(1);
                }
        ",
    },
    Edit {
        name: "DesertedTooSoon",
        file: "acquire/waiter.rs",
        find: "millis_rounded_up(skew.saturating_add(MAX_GRACE))",
        put: "millis_rounded_up(skew.saturating_add(if MISTAKEN { Duration::ZERO } else { MAX_GRACE }))",
    },
    Edit {
        name: "NoDesertedClause",
        file: "acquire/waiter.rs",
        find: "_ => own_turn(free_for).min(self.deserted_in(now, record, bounds).unwrap_or(Duration::MAX)),",
        put: "
            _ if MISTAKEN => own_turn(free_for),
            _ => own_turn(free_for).min(self.deserted_in(now, record, bounds).unwrap_or(Duration::MAX)),
        ",
    },
    Edit {
        name: "LostTurnsKept",
        file: "line.rs",
        find: "if served != self.served {",
        put: "if served != self.served && !MISTAKEN {",
    },
    Edit {
        name: "NewcomerPasses",
        file: "acquire/waiter.rs",
        find: "None => u32::try_from(line.waiting()).unwrap_or(u32::MAX),",
        put: "
            None if MISTAKEN => 0,
            None => u32::try_from(line.waiting()).unwrap_or(u32::MAX),
        ",
    },
    Edit {
        name: "ServedGoesBack",
        file: "acquire/waiter.rs",
        find: "self.ticket.filter(|ticket| line.served.is_none_or(|served| *ticket > served))",
        put: "self.ticket.filter(|ticket| MISTAKEN || line.served.is_none_or(|served| *ticket > served))",
    },
    Edit {
        name: "SkipAtOnce",
        file: "acquire/waiter.rs",
        find: "Some(ticket) => line.ahead_of(ticket),",
        put: "
            Some(_) if MISTAKEN => 0,
            Some(ticket) => line.ahead_of(ticket),
        ",
    },
    Edit {
        name: "GraceTooShort",
        file: "acquire/waiter.rs",
        find: "(GRACE + GRACE_FOR_EACH.saturating_mul(ahead))",
        put: "(if MISTAKEN { GRACE_FOR_EACH } else { GRACE + GRACE_FOR_EACH.saturating_mul(ahead) })",
    },
    Edit {
        name: "SkipCountsHeldTime",
        file: "observation.rs",
        find: "if is_like_then {",
        put: "if is_like_then || MISTAKEN {",
    },
    Edit {
        name: "TimeBeforeLookCounts",
        file: "observation.rs",
        find: "observed.max(by_wall_clock).min(like_this_for)",
        put: "
            let dead_for = observed.max(by_wall_clock);
            if MISTAKEN { dead_for } else { dead_for.min(like_this_for) }
        ",
    },
    Edit {
        name: "FrozenCountsAsDeserted",
        file: "acquire/waiter.rs",
        find: "record.freeze_changed_at.unwrap_or(0)",
        put: "record.freeze_changed_at.filter(|_| !MISTAKEN).unwrap_or(0)",
    },
    Edit {
        name: "TimeBeforeTicketCounts",
        file: "acquire/waiter.rs",
        find: "Some((joined, _)) if !self.is_carried =>",
        put: "Some((joined, _)) if !self.is_carried && !MISTAKEN =>",
    },
    Edit {
        name: "ReclaimInLine",
        file: "acquire/verdict.rs",
        find: "self.line.filter(|_| !self.reclaims_held(record))",
        put: "self.line.filter(|_| MISTAKEN || !self.reclaims_held(record))",
    },
    // Idempotent work.
    Edit {
        name: "SettledIsFree",
        file: "work.rs",
        find: "if !is_over && is_settled {",
        put: "if !is_over && is_settled && !MISTAKEN {",
    },
    // All other mistakes: they change the expression of a request.
    Edit {
        name: "mistakes in requests",
        file: "expression/mod.rs",
        find: "
                Action::Fence { grant, token } => out.fence(*grant, *token),
            }
            out
        ",
        put: "
                Action::Fence { grant, token } => out.fence(*grant, *token),
            }
            crate::requests::mistaken(out, request)
        ",
    },
];
