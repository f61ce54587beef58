//! A budget from the deadline and the name of an invocation.

use crate::engine::budget::Budget;
use lambda_lock_protocol::from_epoch_millis;
use lambda_runtime::Context;
use std::time::Duration;

/// The longest [timeout](https://docs.aws.amazon.com/lambda/latest/dg/configuration-timeout.html) of a Lambda function.
const MAX_INVOCATION: Duration = Duration::from_secs(15 * 60);

/// The time that is left of an invocation, with that invocation as the owner.
///
/// * The end is the context's deadline. A deadline of 0 means that it is unknown (the context was made by hand). Then
///   the budget is [`unknown`](Budget::unknown), and every acquire needs an explicit lease.
/// * It never lasts longer than 15 minutes, the longest timeout of a function. A wall clock that is behind, as it may be
///   after a restore from a snapshot, would otherwise make the lease too long.
/// * Grace (1 s) and reserve (half of what is left now) are those of every budget. Make the budget first in the
///   handler, so that the reserve is half of the whole.
/// * The [`owner`](Budget::owner) begins with `function:version/request id`, and each acquire adds random digits. The
///   owner belongs to the invocation and not to the process, so several invocations in one environment have different
///   owners. A retried asynchronous invocation has the same request id, but another owner. Name the owner yourself if
///   the retry should get its own lock [again](crate::Acquire::reclaim_own).
///
/// `cargo lambda watch` sends the constant deadline 600000, a time in 1970. Then no time is left in the budget, and
/// acquiring within it returns [`OutOfTime`](crate::ErrorKind::OutOfTime).
impl From<&Context> for Budget {
    fn from(context: &Context) -> Self {
        let deadline = Some(context.deadline).filter(|deadline| *deadline != 0);
        let budget = deadline.and_then(from_epoch_millis).map_or_else(Budget::unknown, Budget::until);
        let budget = budget.at_most(MAX_INVOCATION);
        match invocation(context) {
            Some(name) => budget.owner(name),
            None => budget,
        }
    }
}

/// Returns the name of the invocation, for people who look at the table or at the error of another caller. It is enough
/// to find the invocation's log.
fn invocation(context: &Context) -> Option<String> {
    let function = &context.env_config;
    let named = match (function.function_name.as_str(), function.version.as_str()) {
        ("", _) => String::new(),
        (name, "") => format!("{name}/"),
        (name, version) => format!("{name}:{version}/"),
    };
    (!context.request_id.is_empty()).then(|| format!("{named}{}", context.request_id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::clock;
    use lambda_runtime::Config;
    use std::sync::Arc;

    fn context(request_id: &str, name: &str, version: &str) -> Context {
        let mut context = Context::default();
        context.request_id = request_id.to_owned();
        let config = Config { function_name: name.to_owned(), version: version.to_owned(), ..Config::default() };
        context.env_config = Arc::new(config);
        context
    }

    fn in_seconds(seconds: u64) -> u64 {
        let now = clock::system().now().wall;
        (now + Duration::from_secs(seconds)).as_millis() as u64
    }

    #[test]
    fn the_deadline_of_the_invocation_is_the_end_of_the_budget() {
        let mut context = context("r-1", "orders", "7");
        context.deadline = in_seconds(30);
        let remaining = Budget::from(&context).remaining().unwrap();
        assert!(remaining > Duration::from_secs(28) && remaining <= Duration::from_secs(30), "{remaining:?}");
    }

    #[test]
    fn half_of_the_invocation_is_for_waiting_and_a_second_of_grace_is_covered() {
        let mut context = context("r-1", "orders", "7");
        context.deadline = in_seconds(30);
        let budget = Budget::from(&context);
        assert!(budget.wait().unwrap() <= Duration::from_secs(15) && budget.wait().unwrap() > Duration::from_secs(13));
        assert!(budget.to_cover().unwrap() > Duration::from_secs(29));
    }

    #[test]
    fn a_clock_that_is_behind_does_not_make_an_invocation_longer_than_lambda_allows() {
        let mut context = context("r-1", "orders", "7");
        context.deadline = in_seconds(3630);
        let budget = Budget::from(&context);
        assert!(budget.remaining().unwrap() <= MAX_INVOCATION);
        assert!(budget.wait().unwrap() <= MAX_INVOCATION / 2, "{:?}", budget.wait());
    }

    #[test]
    fn a_deadline_of_zero_is_unknown() {
        assert_eq!(Budget::from(&Context::default()).remaining(), None);
    }

    #[test]
    fn a_deadline_that_has_passed_leaves_nothing() {
        let mut context = context("r-1", "orders", "7");
        context.deadline = 600_000;
        assert_eq!(Budget::from(&context).remaining(), Some(Duration::ZERO));
    }

    #[test]
    fn the_owner_is_the_invocation_and_not_the_process() {
        let owner = |context: &Context| Budget::from(context).owner_name().map(str::to_owned);
        assert_eq!(owner(&context("r-1", "orders", "$LATEST")).as_deref(), Some("orders:$LATEST/r-1"));
        assert_eq!(owner(&context("r-2", "orders", "$LATEST")).as_deref(), Some("orders:$LATEST/r-2"));
        assert_eq!(owner(&context("r-1", "orders", "")).as_deref(), Some("orders/r-1"));
        assert_eq!(owner(&context("r-1", "", "7")).as_deref(), Some("r-1"));
        assert_eq!(owner(&context("", "orders", "7")), None);
    }
}
