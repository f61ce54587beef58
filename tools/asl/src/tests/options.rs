//! What cannot be used is an error that says what to give, and what is printed keeps its form.

use crate::options::Options;
use crate::{policy, sample, states};
use serde_json::{Value, json};
use std::time::Duration;

fn refused(change: impl FnOnce(&mut Options)) -> String {
    let mut options = Options::default();
    change(&mut options);
    states(&options, "test").unwrap_err().to_string()
}

#[test]
fn an_option_that_cannot_be_used_is_an_error_that_says_what_to_give() {
    let cases: [(&str, String); 10] = [
        ("give its name, its ARN", refused(|options| options.table.clear())),
        ("give aws, aws-cn", refused(|options| options.partition.clear())),
        ("give one in JSONata", refused(|options| options.key = " ".to_owned())),
        ("give the JSONata alone", refused(|options| options.owner = "{% $states.input.owner %}".to_owned())),
        ("give the name of the table's sort key", refused(|options| options.sort_key = Some("'a'".to_owned()))),
        ("give the expression of its sort key", refused(|options| options.sort_key_attribute = Some("a".to_owned()))),
        ("longer than 0", refused(|options| options.lease = Duration::ZERO)),
        ("at most 366 days", refused(|options| options.lease = Duration::from_secs(400 * 86_400))),
        ("1 to 99999999 whole seconds; got 0", refused(|options| options.poll_seconds = 0)),
        ("from 0.0 to 1.0", refused(|options| options.clock_drift = 2.0)),
    ];
    for (expected, error) in cases {
        assert!(error.contains(expected), "{error}");
    }
    assert!(refused(|options| options.first_step.clear()).contains("1 to 80 characters"));
    assert!(refused(|options| options.ttl_attribute = Some("data".to_owned())).contains("choose another name"));
    let error = policy(&Options::default(), &[]).unwrap_err().to_string();
    assert!(error.contains("give patterns such as customer-*"), "{error}");
}

#[test]
fn the_policy_allows_two_actions_on_these_keys_and_no_request_without_a_key() {
    let keys = ["customer-*".to_owned(), "job/nightly".to_owned()];
    let printed = |options: &Options| serde_json::to_value(policy(options, &keys).unwrap()).unwrap();
    let by_name = printed(&Options { table: "locks".to_owned(), ..Options::default() });
    let statement = &by_name["Statement"][0];
    assert_eq!(statement["Action"], json!(["dynamodb:GetItem", "dynamodb:UpdateItem"]));
    assert_eq!(
        statement["Resource"]["Fn::Sub"],
        "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/locks"
    );
    assert_eq!(statement["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"], json!(keys));
    assert_eq!(statement["Condition"]["Null"]["dynamodb:LeadingKeys"], "false");
    assert_eq!(statement["Condition"]["StringEqualsIfExists"]["dynamodb:Select"], "SPECIFIC_ATTRIBUTES");
    let with_all = Options {
        key_attribute: "id".to_owned(),
        sort_key: Some("'s'".to_owned()),
        sort_key_attribute: Some("range".to_owned()),
        ttl_attribute: Some("expiresAt".to_owned()),
        ..Options::default()
    };
    let named = &printed(&with_all)["Statement"][0]["Condition"]["ForAllValues:StringEquals"]["dynamodb:Attributes"];
    let own = ["id", "range", "expiresAt"];
    let of_record = ["leaseEndsAt", "leaseDuration", "ownerName", "isReleased", "fencingToken", "recordVersionNumber"];
    assert_eq!(
        *named,
        json!([&own[..], &of_record, &["workflow", "brokenVersion", "freezeReason", "ttlAttribute"]].concat())
    );
    let arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/locks";
    let by_arn = printed(&Options { table: arn.to_owned(), ..Options::default() });
    assert_eq!(by_arn["Statement"][0]["Resource"], arn);
}

#[test]
fn what_is_printed_is_json_in_ascii_that_names_its_version_and_its_command() {
    let options = Options { key: "'\u{e4}\u{1f512}\t\"' & $states.input.key".to_owned(), ..Options::default() };
    let sample = sample(&options, "lambda-lock asl --sample").unwrap();
    let text = sample.to_string();
    assert!(text.is_ascii(), "{text}");
    assert_eq!(text.parse::<Value>().unwrap(), serde_json::to_value(&sample).unwrap());
    let comment = text.parse::<Value>().unwrap()["Comment"].as_str().unwrap().to_owned();
    assert!(comment.contains(", protocol ll1. "), "{comment}");
    assert!(comment.ends_with("Write them again with: lambda-lock asl --sample"), "{comment}");
}

#[test]
fn a_step_has_no_name_of_a_state_of_the_lock() {
    let options = Options::default();
    let printed = serde_json::to_value(states(&options, "test").unwrap()).unwrap();
    for state in printed["States"].as_object().unwrap().keys() {
        let refused_as = |options: &Options| {
            for error in [states(options, "t"), sample(options, "t"), policy(options, &["*".to_owned()])] {
                let error = error.unwrap_err().to_string();
                assert!(error.contains(&format!("{state:?}")) && error.contains("another name"), "{error}");
            }
        };
        refused_as(&Options { first_step: state.to_owned(), ..options.clone() });
        refused_as(&Options { second_step: state.to_owned(), ..options.clone() });
    }
    let twice = Options { first_step: "SecondStep".to_owned(), ..Options::default() };
    assert!(sample(&twice, "t").unwrap_err().to_string().contains("both steps"));
}

/// The pauses between all attempts of a retrier, in seconds.
fn pauses(retrier: &Value) -> u64 {
    let number = |name: &str| retrier[name].as_u64().unwrap();
    let (mut pause, mut sum) = (number("IntervalSeconds"), 0);
    for _ in 0..number("MaxAttempts") {
        sum += pause;
        pause = (pause * number("BackoffRate")).min(number("MaxDelaySeconds"));
    }
    sum
}

#[test]
fn the_lease_covers_a_step_with_all_of_its_attempts_and_unlock_is_tried_for_as_long() {
    let sample = serde_json::to_value(sample(&Options::default(), "test").unwrap()).unwrap();
    let seconds = |state: &str| sample["States"][state]["TimeoutSeconds"].as_u64().unwrap();
    let lease = sample["States"]["Lock"]["Assign"]["lock"]["leaseSeconds"].as_u64().unwrap();
    for (step, before) in [("FirstStep", "Lock"), ("FirstStep", "Take"), ("SecondStep", "Renew")] {
        let retrier = &sample["States"][step]["Retry"][0];
        let attempts = retrier["MaxAttempts"].as_u64().unwrap() + 1;
        // Step Functions does not say how long it takes from one attempt or state to the next.
        let between_states = 5;
        assert!(lease >= seconds(before) + attempts * seconds(step) + pauses(retrier) + between_states, "{step}");
    }
    for lease in [1, 180, 3_300, 86_400] {
        let options = Options { lease: Duration::from_secs(lease), ..Options::default() };
        let states = serde_json::to_value(states(&options, "test").unwrap()).unwrap();
        for state in ["Unlock", "UnlockAfterFailure"] {
            let retrier = &states["States"][state]["Retry"][1];
            assert!(pauses(retrier) >= lease, "{state}: {retrier} for {lease} s");
            assert!(retrier["MaxAttempts"].as_u64().unwrap() < 40, "{state}: {retrier} for {lease} s");
        }
    }
}

/// Every state that is named exists, and every state is named.
#[test]
fn every_path_of_the_sample_leads_somewhere() {
    let sample = sample(&Options::default(), "test").unwrap();
    let sample = serde_json::to_value(&sample).unwrap();
    let states = sample["States"].as_object().unwrap();
    let mut named = vec![sample["StartAt"].as_str().unwrap().to_owned()];
    for state in states.values() {
        let lists = ["Catch", "Choices"].map(|name| state[name].as_array().cloned().unwrap_or_default());
        for rule in lists.concat().iter().chain([state]) {
            named.extend(["Next", "Default"].iter().filter_map(|name| rule[*name].as_str()).map(str::to_owned));
        }
    }
    named.sort();
    named.dedup();
    let mut all: Vec<_> = states.keys().cloned().collect();
    all.sort();
    assert_eq!(named, all);
}
