//! Acquires: written, answered, left at every moment.

use super::super::UNSENT_MAX;
use super::super::requests::Outcome;
use super::rig::{FIRST_TOKEN, Rig, banner, domain, published_banner};
use crate::clock::{MILLISECOND, SECOND};
use crate::protocol::fields::OWNER_TOP_BIT;

#[test]
fn what_is_left_of_the_wait_is_written_rounded_up_when_it_is_written() {
    let (mut rig, session) = Rig::leading();
    rig.ask("k", 5);
    rig.now += 1_500 * MILLISECOND;
    let asked = rig.written(session);
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].opcode, asked[0].wait, asked[0].lease), (b'Q', 4, 30));
    assert!(asked[0].number & OWNER_TOP_BIT != 0);
}

#[test]
fn nothing_is_written_once_the_wait_is_over() {
    let (mut rig, session) = Rig::leading();
    let late = rig.ask("k", 1);
    rig.now += SECOND;
    assert_eq!(rig.written(session), []);
    assert_eq!(rig.outcome(late), Some(Outcome::WaitOver));
    rig.assert_clean();
}

#[test]
fn every_request_has_an_owner_of_its_own() {
    let (mut rig, session) = Rig::leading();
    for _ in 0..5_000 {
        rig.ask("k", 5);
    }
    let mut owners: Vec<u64> = rig.written(session).iter().map(|asked| asked.number).collect();
    assert_eq!(owners.len(), 5_000);
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), 5_000);
}

#[test]
fn requests_are_written_in_the_order_in_which_they_were_asked_sessions_or_not() {
    let mut rig = Rig::new(&["a:1"]);
    for number in 0..50 {
        rig.ask(&format!("k{number}"), 5);
    }
    let session = rig.open(0, &banner(&domain(FIRST_TOKEN, 1), "a:1"), "La:1\n");
    let keys: Vec<String> = rig.written(session).into_iter().map(|asked| asked.key).collect();
    assert_eq!(keys, (0..50).map(|number| format!("k{number}")).collect::<Vec<_>>());
}

#[test]
fn left_before_it_was_written_nothing_of_it_is() {
    let (mut rig, session) = Rig::leading();
    let gone = rig.ask("gone", 5);
    let stays = rig.ask("stays", 5);
    rig.leave(gone);
    let asked = rig.written(session);
    assert_eq!(asked.iter().map(|asked| asked.key.as_str()).collect::<Vec<_>>(), ["stays"]);
    rig.leave(stays);
    assert_eq!(rig.written(session).len(), 1);
}

#[test]
fn left_after_it_was_written_it_is_cancelled_on_its_own_session_which_stays() {
    let (mut rig, session) = Rig::leading();
    let other = rig.ask("other", 60);
    let gone = rig.ask("gone", 60);
    let asked = rig.written(session);
    rig.leave(gone);
    let cancels = rig.written(session);
    assert_eq!((cancels[0].opcode, cancels[0].number, cancels.len()), (b'C', asked[1].number, 1));
    rig.say(session, &cancels[0].answered(b'R'));
    rig.pass_alive(10 * SECOND, &[session]);
    assert!(!rig.is_over(session));
    assert_eq!(rig.outcome(other), None);
    rig.say(session, &asked[0].granted(FIRST_TOKEN + 1));
    assert!(matches!(rig.outcome(other), Some(Outcome::Granted(_))));
    rig.assert_clean();
}

#[test]
fn a_grant_that_was_read_and_not_taken_when_the_broker_is_closed_is_given_back() {
    let (mut rig, session) = Rig::leading();
    let request = rig.ask("k", 60);
    let asked = rig.written(session).remove(0);
    rig.say(session, &asked.granted(FIRST_TOKEN + 5));
    rig.core.shut(rig.now);
    rig.look();
    let release = rig.written(session).remove(0);
    assert_eq!((release.opcode, release.number), (b'R', FIRST_TOKEN + 5));
    rig.say(session, &release.answered(b'R'));
    rig.look();
    assert!(rig.is_over(session));
    assert_eq!(rig.outcome(request), Some(Outcome::Lost));
}

#[test]
fn a_cancel_without_an_answer_for_three_seconds_closes_exactly_its_session() {
    let mut rig = Rig::new(&["a:1"]);
    let here = banner(&domain(FIRST_TOKEN, 1), "a:1");
    let (first, second) = (rig.open(0, &here, "La:1\n"), rig.open(1, &here, "La:1\n"));
    let (gone, other) = (rig.ask("gone", 60), rig.ask("other", 60));
    let asked = rig.written(first);
    rig.leave(gone);
    assert_eq!(rig.written(first).len(), 1);
    rig.pass_alive(2_900 * MILLISECOND, &[first, second]);
    assert!(!rig.is_over(first));
    rig.pass_alive(200 * MILLISECOND, &[first, second]);
    assert!(rig.is_over(first));
    assert!(!rig.is_over(second));
    assert_eq!(rig.outcome(other), Some(Outcome::Lost));
    // Both are cancelled where an answer can be had.
    let mut cancelled: Vec<u64> = rig.written(second).iter().map(|cancel| cancel.number).collect();
    let mut owners: Vec<u64> = asked.iter().map(|asked| asked.number).collect();
    cancelled.sort_unstable();
    owners.sort_unstable();
    assert_eq!(cancelled, owners);
}

#[test]
fn a_grant_that_crosses_its_cancel_is_released_by_its_token() {
    let (mut rig, session) = Rig::leading();
    let gone = rig.ask("k", 5);
    let asked = rig.written(session).remove(0);
    rig.leave(gone);
    rig.say(session, &asked.granted(FIRST_TOKEN + 9));
    let sent = rig.written(session);
    assert_eq!(
        sent.iter().map(|one| (one.opcode, one.number)).collect::<Vec<_>>(),
        [(b'C', asked.number), (b'R', FIRST_TOKEN + 9)]
    );
    sent.iter().for_each(|one| rig.say(session, &one.answered(b'R')));
    rig.assert_clean();
}

#[test]
fn a_grant_that_comes_after_the_answer_to_its_cancel_is_released_as_well() {
    let (mut rig, session) = Rig::leading();
    let gone = rig.ask("k", 5);
    let asked = rig.written(session).remove(0);
    rig.leave(gone);
    let cancel = rig.written(session).remove(0);
    rig.say(session, &cancel.answered(b'R'));
    rig.say(session, &asked.granted(FIRST_TOKEN + 9));
    assert!(!rig.is_over(session));
    let release = rig.written(session).remove(0);
    assert_eq!((release.opcode, release.number), (b'R', FIRST_TOKEN + 9));
    // There is one answer at most to what was given up.
    rig.say(session, &release.answered(b'R'));
    rig.say(session, &asked.answered(b'T'));
    assert!(rig.is_over(session));
}

#[test]
fn a_grant_that_was_read_and_not_taken_is_released_by_its_token() {
    let (mut rig, session) = Rig::leading();
    let gone = rig.ask("k", 5);
    let asked = rig.written(session).remove(0);
    rig.say(session, &asked.granted(FIRST_TOKEN + 9));
    rig.leave(gone);
    let sent = rig.written(session);
    assert_eq!((sent[0].opcode, sent[0].number, sent.len()), (b'R', FIRST_TOKEN + 9, 1));
}

#[test]
fn at_a_published_server_a_session_is_closed_for_a_request_that_is_left() {
    let mut rig = Rig::new(&["a:1"]);
    let session = rig.open(0, &published_banner(), "");
    let (gone, other) = (rig.ask("k", 5), rig.ask("other", 5));
    let asked = rig.written(session);
    assert_eq!(asked[0].opcode, b'A');
    rig.leave(gone);
    assert!(rig.is_over(session));
    assert_eq!(rig.outcome(other), Some(Outcome::Lost));
    rig.assert_clean();
}

#[test]
fn a_late_refusal_of_a_published_server_is_no_indeterminate() {
    let mut rig = Rig::new(&["a:1"]);
    let session = rig.open(0, &published_banner(), "");
    let request = rig.ask("k", 5);
    assert_eq!(rig.written(session).len(), 1);
    rig.say(session, b"Eauth_failed\n");
    assert!(matches!(rig.outcome(request), Some(Outcome::Refused(_))));
}

#[test]
fn a_session_that_ends_loses_what_was_written_and_passes_on_what_was_not() {
    for last_words in ["Ma:2\n", "Eno_leader\n", "Eshutting_down\n", "?\n", "R\0\0\0\0\0\0\0\x01k\n", ""] {
        let mut rig = Rig::new(&["a:1", "a:2"]);
        let name = domain(FIRST_TOKEN, 1);
        let first = rig.open(0, &banner(&name, "a:1"), "La:1\n");
        let written = rig.ask("written", 5);
        let asked = rig.written(first).remove(0);
        let queued = rig.ask("queued", 5);
        if last_words.is_empty() {
            rig.core.transport_lost(first, "gone", rig.now);
        } else {
            rig.say(first, last_words.as_bytes());
        }
        assert!(rig.is_over(first), "{last_words:?}");
        assert_eq!(rig.outcome(written), Some(Outcome::Lost), "{last_words:?}");
        let second = rig.open(1, &banner(&name, "a:2"), "La:2\n");
        let sent = rig.written(second);
        let cancel = sent.iter().find(|one| one.opcode == b'C').expect("the cancel of what was lost");
        let again = sent.iter().find(|one| one.opcode == b'Q').expect("what was not sent");
        assert_eq!((cancel.number, cancel.key.as_str()), (asked.number, "written"));
        assert_eq!((again.key.as_str(), sent.len()), ("queued", 2));
        rig.say(second, &again.granted(FIRST_TOKEN + 1));
        assert!(matches!(rig.outcome(queued), Some(Outcome::Granted(_))));
    }
}

#[test]
fn an_acquire_unanswered_five_seconds_after_its_wait_is_lost() {
    let (mut rig, session) = Rig::leading();
    let request = rig.ask("k", 7);
    rig.written(session);
    rig.pass_alive(11_900 * MILLISECOND, &[session]);
    assert_eq!(rig.outcome(request), None);
    rig.pass_alive(200 * MILLISECOND, &[session]);
    assert_eq!(rig.outcome(request), Some(Outcome::Lost));
    assert!(rig.is_over(session));
}

#[test]
fn a_grant_cannot_have_waited_longer_than_since_its_first_byte() {
    for (waited_ms, fine) in [(1_000, true), (1_005, true), (1_006, false)] {
        let (mut rig, session) = Rig::leading();
        let request = rig.ask("k", 5);
        let asked = rig.written(session).remove(0);
        rig.now += SECOND;
        rig.say(session, &asked.granted_after(FIRST_TOKEN + 1, waited_ms));
        let outcome = rig.outcome(request);
        assert_eq!(matches!(outcome, Some(Outcome::Granted(_))), fine, "{waited_ms} ms: {outcome:?}");
        assert_eq!(rig.is_over(session), !fine);
    }
}

#[test]
fn a_v_is_for_the_caller_to_ask_again_where_an_l_points() {
    let mut rig = Rig::new(&["a:1", "a:2"]);
    let name = domain(FIRST_TOKEN, 1);
    let first = rig.open(0, &banner(&name, "a:1"), "La:1\n");
    let second = rig.open(1, &banner(&name, "a:2"), "\n");
    let request = rig.ask("k", 5);
    let asked = rig.written(first).remove(0);
    rig.say(first, &asked.answered(b'V'));
    assert_eq!(rig.outcome(request), Some(Outcome::NotLeading));
    let again = rig.ask_named("k", 5, true);
    assert_eq!((rig.written(first), rig.written(second)), (vec![], vec![]));
    rig.say(second, b"La:2\n");
    let sent = rig.written(second);
    assert_eq!(sent.len(), 1);
    assert_ne!(sent[0].number, asked.number);
    rig.say(second, &sent[0].granted(FIRST_TOKEN + 1));
    assert!(matches!(rig.outcome(again), Some(Outcome::Granted(_))));
}

#[test]
fn a_try_without_wait_needs_a_session_now() {
    let mut rig = Rig::new(&["a:1", "a:2"]);
    let request = rig.ask("k", 0);
    assert_eq!(rig.outcome(request), Some(Outcome::NoSession));
    // One that may lead is not one that an `L` names.
    rig.open(0, &banner(&domain(FIRST_TOKEN, 1), "a:1"), "\n");
    let request = rig.ask("k", 0);
    assert_eq!(rig.outcome(request), Some(Outcome::NoSession));
    rig.assert_clean();
}

#[test]
fn what_is_not_sent_is_bounded_and_ends_with_its_wait() {
    let mut rig = Rig::new(&["a:1"]);
    let requests: Vec<_> = (0..UNSENT_MAX).map(|_| rig.ask("k", 5)).collect();
    assert_eq!(rig.core.ask("k".into(), rig.now + SECOND, 30, false), None);
    rig.leave(requests[0]);
    let last = rig.ask("k", 5);
    rig.now += 5 * SECOND;
    rig.look();
    for id in requests.into_iter().skip(1).chain([last]) {
        assert_eq!(rig.outcome(id), Some(Outcome::WaitOver));
    }
    rig.assert_clean();
}

#[test]
fn what_was_taken_back_does_not_fill_the_queue_of_a_session_that_cannot_write() {
    let (mut rig, session) = Rig::leading();
    for _ in 0..20_000 {
        let request = rig.ask("k", 5);
        rig.leave(request);
    }
    assert!(rig.core.sessions[&session].queue.len() < 3_000);
}

#[test]
fn what_was_taken_back_keeps_nobody_behind_it_waiting() {
    let (mut rig, session) = Rig::leading();
    let gone: Vec<_> = (0..3_000).map(|_| rig.ask("gone", 5)).collect();
    let stays = rig.ask("stays", 5);
    let back: Vec<_> = (0..3_000).map(|_| rig.ask("back", 5)).collect();
    gone.into_iter().chain(back).for_each(|request| rig.leave(request));
    let mut out = Vec::new();
    rig.core.orders(session, true, &mut out, rig.now);
    assert!(out.ends_with(b"stays\n"), "one look at the queue is all that there is");
    rig.leave(stays);
}

#[test]
fn closing_ends_the_unsent_and_cancels_the_sent() {
    let (mut rig, session) = Rig::leading();
    let sent = rig.ask("sent", 5);
    let asked = rig.written(session).remove(0);
    let unsent = rig.ask("unsent", 5);
    rig.core.shut(rig.now);
    assert_eq!(rig.outcome(sent), Some(Outcome::Lost));
    assert_eq!(rig.outcome(unsent), Some(Outcome::Shut));
    let cancel = rig.written(session).remove(0);
    assert_eq!((cancel.opcode, cancel.number), (b'C', asked.number));
    rig.look();
    assert!(!rig.is_over(session));
    rig.say(session, &cancel.answered(b'R'));
    rig.look();
    assert!(rig.is_over(session));
    rig.assert_clean();
}

#[test]
fn closing_waits_five_seconds_for_errands() {
    let mut rig = Rig::new(&["a:1"]);
    let errand = rig.errand("k", 5);
    assert!(rig.core.run(errand, rig.now).is_some());
    rig.core.shut(rig.now);
    rig.pass(4_900 * MILLISECOND);
    assert_eq!(rig.core.errands.len(), 1);
    assert!(rig.core.bound());
    rig.pass(200 * MILLISECOND);
    assert_eq!(rig.core.errands.len(), 0);
    assert!(!rig.core.bound());
}
