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
customer-7 b    ··········██████████░░░░×
customer-7 c      ······················»█████████×
customer-7 d                                ········
              0 s                                   44.0 s
· waits  █ holds  ░ its lease is over  × lost it  » took it over
";
    assert_eq!(text(&record(), 14 + 44), drawn);
}

#[test]
fn a_lock_that_was_dead_when_the_record_began_is_drawn_so() {
    let at = |seconds: u64| 1_764_000_000_000 + seconds * 1_000;
    let record = [event(at(10), Change::Dead, "a", at(2)), event(at(20), Change::TakenOver, "b", at(40))];
    let drawn = text(&record, 60);
    let lane = drawn.lines().next().unwrap();
    assert!(lane.contains('░') && !lane.contains('█'), "{drawn}");
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
    // One more of each in the legend.
    assert_eq!((bars("held"), bars("waiting"), bars("dead")), (4 + 1, 3 + 1, 1 + 1));
    // b lost it to c, c to an operator.
    assert_eq!(bars("lost"), 3 + 1);
    assert!(drawn.contains("44.0 s"), "{drawn}");
}

#[test]
fn hostile_names_are_only_text() {
    let mut events = record();
    "<script>\u{1b}[2J\n\u{202e}".clone_into(&mut events[0].holder);
    let drawn = svg(&events);
    assert!(!drawn.contains("<script>") && drawn.contains("&lt;script&gt;"), "{drawn}");
    for hidden in ["\u{1b}", "script>\n", "\n\u{202e}", "\u{202e}"] {
        assert!(!drawn.contains(hidden) && !text(&events, 80).contains(hidden), "{hidden:?}");
    }
    assert_eq!(text(&events, 80).lines().count(), text(&record(), 80).lines().count() + 1);
}

#[test]
fn a_huge_name_leaves_room_for_the_bars() {
    let mut events = record();
    for event in &mut events {
        event.key = "k".repeat(400_000);
    }
    for line in text(&events, 80).lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text(&events, 80).contains("k…k") && text(&events, 80).contains("k b  "));
    assert!(svg(&events).len() < 20_000);
}

#[test]
fn a_renewal_of_a_holder_that_was_not_seen_before_shows_it_from_the_beginning() {
    let events =
        [event(0, Change::Waiting, "b", 0), event(10, Change::Renewed, "a", 30), event(20, Change::Released, "a", 0)];
    assert!(text(&events, 60).contains(&format!("a  {}\n", "█".repeat(60 - 14))), "{}", text(&events, 60));
}

/// Each grant of a busy lock has an owner of its own, unless callers name themselves.
#[test]
fn a_long_record_with_many_holders_is_drawn_in_time() {
    let holders: Vec<_> =
        (0..100_000_u64).map(|number| event(number, Change::Granted, &number.to_string(), 0)).collect();
    let begun = std::time::Instant::now();
    assert_eq!(text(&holders, 80).lines().count(), 100_002);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn an_empty_record_and_one_moment_can_be_drawn() {
    assert_eq!(text(&[], 80), "nothing happened\n");
    assert!(svg(&[]).starts_with("<svg"));
    let moment = [event(5, Change::Granted, "a", 15)];
    assert!(text(&moment, 5).contains('█'));
    assert!(svg(&moment).contains("held"));
}

/// `cargo demo --timeline docs/demo.svg` makes both anew.
#[test]
fn the_readme_shows_what_the_record_of_the_demo_looks_like() {
    let docs =
        |name: &str| std::fs::read_to_string(format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let events: Vec<Event> = docs("demo.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(svg(&events) + "\n", docs("demo.svg"));
    let told: Vec<_> = events.iter().map(|event| event.change).collect();
    for change in [Change::Waiting, Change::Granted, Change::Released] {
        assert!(told.contains(&change), "{change:?}");
    }
    let lost = |change: &&Change| **change == Change::TakenOver;
    assert_eq!(told.iter().filter(lost).count(), 2, "of the killed holder, and of the stopped one");
}

#[test]
fn a_record_is_read_as_it_is_written() {
    let line =
        r#"{"at":1,"key":"k","change":"takenOver","holder":"h","fencingToken":7,"leaseEndsAt":9,"reason":"gone"}"#;
    let event: Event = serde_json::from_str(line).unwrap();
    assert_eq!(event.change, Change::TakenOver);
    assert_eq!(serde_json::to_string(&event).unwrap(), line);
}
