//! What a record of events looks like.

use lambda_lock_timeline::{Change, Event, svg, text};

fn event(at: u64, change: Change, holder: &str, lease_ends_at: u64) -> Event {
    let (key, holder) = ("customer-7".to_owned(), holder.to_owned());
    Event { at, key, change, holder, fencing_token: None, lease_ends_at: Some(lease_ends_at), reason: None }
}

/// One holder releases, the next one dies, the third takes over and is broken.
fn record() -> Vec<Event> {
    let at = |seconds: u64| 1_764_000_000_000 + seconds * 1_000;
    vec![
        event(at(0), Change::Granted, "a", at(10)),
        event(at(2), Change::Waiting, "b", 0),
        event(at(4), Change::Waiting, "c", 0),
        event(at(5), Change::Renewed, "a", at(15)),
        event(at(12), Change::Released, "a", at(12)),
        event(at(12), Change::Granted, "b", at(22)),
        event(at(26), Change::TakenOver, "c", at(60)),
        event(at(30), Change::Waiting, "d", 0),
        event(at(36), Change::Broken, "c", at(36)),
        event(at(38), Change::Refused, "d", 0),
        event(at(40), Change::Granted, "a", at(50)),
        event(at(44), Change::Released, "a", at(44)),
    ]
}

#[test]
fn holders_that_wait_hold_die_and_take_over() {
    let drawn = "\
customer-7 a  ████████████                            ████
customer-7 b    ··········██████████░░░░
customer-7 c      ······················██████████
customer-7 d                                ········
              0 s                                   44.0 s
";
    assert_eq!(text(&record(), 14 + 44), drawn);
}

#[test]
fn the_order_of_the_events_does_not_matter() {
    let mut events = record();
    // Equal times keep their order: the release comes before the grant.
    events.swap(1, 10);
    let sorted = |text: String| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(sorted(text(&events, 80)), sorted(text(&record(), 80)));
}

#[test]
fn each_span_is_a_bar_of_the_picture() {
    let drawn = svg(&record());
    let bars = |class: &str| drawn.matches(&format!("class=\"{class}\"")).count();
    assert_eq!((bars("held"), bars("waiting"), bars("dead")), (4, 3, 1));
    assert!(drawn.contains("44.0 s"), "{drawn}");
}

#[test]
fn hostile_names_are_only_text() {
    let mut events = record();
    "<script>\u{1b}[2J".clone_into(&mut events[0].holder);
    let drawn = svg(&events);
    assert!(!drawn.contains("<script>") && drawn.contains("&lt;script&gt;"), "{drawn}");
    assert!(!drawn.contains('\u{1b}') && !text(&events, 80).contains('\u{1b}'));
}

#[test]
fn an_empty_record_and_one_moment_can_be_drawn() {
    assert_eq!(text(&[], 80), "nothing happened\n");
    assert!(svg(&[]).starts_with("<svg"));
    let moment = [event(5, Change::Granted, "a", 15)];
    assert!(text(&moment, 5).contains('█'));
    assert!(svg(&moment).contains("held"));
}

#[test]
fn a_record_is_read_as_it_is_written() {
    let line =
        r#"{"at":1,"key":"k","change":"takenOver","holder":"h","fencingToken":7,"leaseEndsAt":9,"reason":"gone"}"#;
    let event: Event = serde_json::from_str(line).unwrap();
    assert_eq!(event.change, Change::TakenOver);
    assert_eq!(serde_json::to_string(&event).unwrap(), line);
}
