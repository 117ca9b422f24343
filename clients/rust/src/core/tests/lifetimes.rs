//! Releases, extensions and cancels: tried again, counted, over.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::super::requests::{Answer, Errand, Task};
use super::super::{ERRAND, ERRANDS_MAX};
use super::rig::{FIRST_TOKEN, Rig, banner, domain};
use crate::clock::{MILLISECOND, SECOND};

const TOKEN: u64 = FIRST_TOKEN + 1;

fn run(rig: &mut Rig, mut errand: Errand) -> oneshot::Receiver<Answer> {
    let (reply, answer) = oneshot::channel();
    errand.reply = Some(reply);
    assert!(rig.core.run(errand, rig.now).is_some());
    answer
}

fn extension(rig: &Rig, lease: u16) -> Errand {
    let mut errand = rig.errand("k", TOKEN);
    errand.task = Task::Extend(lease);
    errand
}

#[test]
fn a_release_is_tried_anew_every_one_and_a_half_seconds_and_for_five_in_all() {
    let (mut rig, session) = Rig::leading();
    let errand = rig.errand("k", TOKEN);
    let mut answer = run(&mut rig, errand);
    for _ in 0..3 {
        assert_eq!(rig.written(session).len(), 1);
        rig.pass_alive(1_450 * MILLISECOND, &[session]);
        assert_eq!(rig.written(session).len(), 0);
        rig.pass_alive(100 * MILLISECOND, &[session]);
    }
    assert_eq!(rig.written(session).len(), 1);
    rig.pass_alive(SECOND, &[session]);
    assert_eq!(answer.try_recv(), Ok(Answer::Nothing));
    // Its answers are no fault now.
    for _ in 0..1 {
        let late = super::rig::Asked { opcode: b'R', wait: 0, lease: 0, number: TOKEN, key: "k".into() };
        rig.say(session, &late.answered(b'R'));
    }
    assert!(!rig.is_over(session));
    rig.assert_clean();
}

#[test]
fn a_release_whose_session_ends_goes_on_with_the_next_one() {
    let mut rig = Rig::new(&["a:1", "a:2"]);
    let name = domain(FIRST_TOKEN, 1);
    let first = rig.open(0, &banner(&name, "a:1"), "La:1\n");
    let errand = rig.errand("k", TOKEN);
    let mut answer = run(&mut rig, errand);
    assert_eq!(rig.written(first).len(), 1);
    rig.say(first, b"Ma:2\n");
    let second = rig.open(1, &banner(&name, "a:2"), "La:2\n");
    let release = rig.written(second).remove(0);
    assert_eq!((release.opcode, release.number), (b'R', TOKEN));
    rig.say(second, &release.answered(b'N'));
    assert_eq!(answer.try_recv(), Ok(Answer::NotHeld));
}

#[test]
fn the_same_frame_is_under_way_once_and_its_answer_is_for_all() {
    let (mut rig, session) = Rig::leading();
    let mut answers: Vec<_> = (0..3)
        .map(|_| {
            let errand = rig.errand("k", TOKEN);
            run(&mut rig, errand)
        })
        .collect();
    let sent = rig.written(session);
    assert_eq!(sent.len(), 1);
    rig.say(session, &sent[0].answered(b'R'));
    for answer in &mut answers {
        assert_eq!(answer.try_recv(), Ok(Answer::Released));
    }
    rig.assert_clean();
}

#[test]
fn errands_are_bounded_and_a_cancel_beyond_that_is_sent_all_the_same() {
    let (mut rig, session) = Rig::leading();
    let request = rig.ask("k", 60);
    let asked = rig.written(session).remove(0);
    for token in 0..ERRANDS_MAX as u64 {
        let errand = rig.errand("other", token + 1);
        assert!(rig.core.run(errand, rig.now).is_some());
    }
    let errand = rig.errand("other", 0);
    assert!(rig.core.run(errand, rig.now).is_none());
    rig.leave(request);
    let sent = rig.written(session);
    let cancel = sent.iter().find(|one| one.opcode == b'C').expect("a cancel");
    assert_eq!((cancel.number, sent.len()), (asked.number, ERRANDS_MAX + 1));
    rig.say(session, &cancel.answered(b'R'));
    assert!(!rig.is_over(session));
}

#[test]
fn an_extension_is_counted_from_the_first_byte_of_the_earliest_that_is_unanswered() {
    let (mut rig, session) = Rig::leading();
    let ticket = rig.ticket("k", TOKEN, &domain(FIRST_TOKEN, 1));
    let began = rig.now;
    let mut errand = extension(&rig, 40);
    errand.ticket = Some(ticket.clone());
    let mut answer = run(&mut rig, errand);
    assert_eq!(rig.written(session).len(), 1);
    rig.pass_alive(1_600 * MILLISECOND, &[session]);
    // The first try was given up; its answer may be the one that comes.
    let second = rig.written(session).remove(0);
    assert_eq!(second.lease, 40);
    rig.say(session, &second.answered(b'X'));
    assert_eq!(answer.try_recv(), Ok(Answer::Extended));
    assert_eq!(ticket.end(), began + 40 * SECOND / 1000 * 998);
    // The other answer gives nothing more.
    rig.say(session, &second.answered(b'X'));
    assert!(!rig.is_over(session));
    assert_eq!(ticket.end(), began + 40 * SECOND / 1000 * 998);
    rig.say(session, &second.answered(b'X'));
    assert!(rig.is_over(session));
}

#[test]
fn an_extension_never_shortens_and_never_revives() {
    let (mut rig, session) = Rig::leading();
    let ticket = rig.ticket("k", TOKEN, &domain(FIRST_TOKEN, 1));
    let end = ticket.end();
    let mut errand = extension(&rig, 1);
    errand.ticket = Some(ticket.clone());
    run(&mut rig, errand);
    let sent = rig.written(session).remove(0);
    rig.say(session, &sent.answered(b'X'));
    assert!(ticket.end() >= end);

    let mut errand = extension(&rig, 250);
    errand.ticket = Some(ticket.clone());
    let mut answer = run(&mut rig, errand);
    let sent = rig.written(session).remove(0);
    let end = ticket.end();
    rig.now = end;
    rig.say(session, &sent.answered(b'X'));
    assert_eq!(answer.try_recv(), Ok(Answer::Extended));
    assert!(ticket.is_lost(rig.now));
    assert_eq!(ticket.end(), end);
}

#[test]
fn an_n_makes_a_ticket_lost_also_where_nobody_waits_for_it() {
    let (mut rig, session) = Rig::leading();
    for task in [Task::Extend(30), Task::Release] {
        let ticket = rig.ticket("k", TOKEN, &domain(FIRST_TOKEN, 1));
        let mut errand = rig.errand("k", TOKEN);
        errand.task = task;
        errand.ticket = Some(ticket.clone());
        assert!(rig.core.run(errand, rig.now).is_some());
        let sent = rig.written(session).remove(0);
        rig.say(session, &sent.answered(b'N'));
        assert!(ticket.is_lost(rig.now));
        assert_eq!(Arc::strong_count(&ticket), 1);
    }
    rig.assert_clean();
}

#[test]
fn where_both_are_under_way_an_n_is_the_extensions() {
    let (mut rig, session) = Rig::leading();
    let (errand, release) = (extension(&rig, 30), rig.errand("k", TOKEN));
    let mut extended = run(&mut rig, errand);
    let mut released = run(&mut rig, release);
    let sent = rig.written(session);
    assert_eq!(sent.iter().map(|one| one.opcode).collect::<Vec<_>>(), *b"XR");
    rig.say(session, &sent[0].answered(b'N'));
    assert_eq!(extended.try_recv(), Ok(Answer::NotHeld));
    assert!(released.try_recv().is_err());
    rig.say(session, &sent[1].answered(b'N'));
    assert_eq!(released.try_recv(), Ok(Answer::NotHeld));
}

#[test]
fn settled_tells_when_all_that_was_open_is_answered() {
    let (mut rig, session) = Rig::leading();
    let release = rig.errand("k", TOKEN);
    run(&mut rig, release);
    let (good, bad) = (rig.core.errands.watch(), rig.core.errands.watch());
    // What begins later is not watched.
    let later = rig.errand("later", TOKEN + 1);
    run(&mut rig, later);
    assert_eq!(rig.core.errands.settled(good), None);
    let sent = rig.written(session).remove(0);
    rig.say(session, &sent.answered(b'R'));
    assert_eq!(rig.core.errands.settled(good), Some(true));
    rig.core.errands.unwatch(bad);
    let unanswered = rig.core.errands.watch();
    rig.pass_alive(ERRAND + 100 * MILLISECOND, &[session]);
    assert_eq!(rig.core.errands.settled(unanswered), Some(false));
}
