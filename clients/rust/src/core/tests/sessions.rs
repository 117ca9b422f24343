//! Sessions: handshakes, deadlines, who is asked, domains, refusals.

use super::super::Orders;
use super::super::requests::Outcome;
use super::rig::{FIRST_TOKEN, Rig, banner, domain, published_banner};
use crate::clock::{MILLISECOND, SECOND};
use crate::core::session::{End, EndKind};

#[test]
fn banner_and_first_line_have_three_seconds_each() {
    let mut rig = Rig::new(&["a:1"]);
    let session = rig.connect(0);
    rig.pass(2_900 * MILLISECOND);
    assert!(!rig.is_over(session));
    rig.say(session, banner(&domain(FIRST_TOKEN, 1), "a:1").as_bytes());
    rig.pass(2_900 * MILLISECOND);
    assert!(!rig.is_over(session));
    rig.pass(200 * MILLISECOND);
    assert!(rig.is_over(session));
    let session = rig.connect(0);
    rig.pass(3_100 * MILLISECOND);
    assert!(rig.is_over(session));
}

#[test]
fn a_session_silent_for_ten_seconds_is_lost_whatever_waits_on_it() {
    let (mut rig, session) = Rig::leading();
    let request = rig.ask("k", 200);
    rig.written(session);
    rig.pass(9_900 * MILLISECOND);
    assert!(!rig.is_over(session));
    rig.pass(200 * MILLISECOND);
    assert!(rig.is_over(session));
    assert_eq!(rig.outcome(request), Some(Outcome::Lost));
}

#[test]
fn one_that_another_is_named_in_place_of_has_two_seconds_to_answer() {
    for claims in [b"La:2\n".as_slice(), b"La:2\nLa:1\n"] {
        let mut rig = Rig::new(&["a:1", "a:2"]);
        let name = domain(FIRST_TOKEN, 1);
        let first = rig.open(0, &banner(&name, "a:1"), "La:1\n");
        let second = rig.open(1, &banner(&name, "a:2"), "La:1\n");
        let request = rig.ask("k", 60);
        rig.written(first);
        rig.say(first, claims);
        rig.pass_alive(1_900 * MILLISECOND, &[first, second]);
        assert_eq!(rig.outcome(request), None);
        rig.pass_alive(300 * MILLISECOND, &[first, second]);
        // Named again, it keeps its requests.
        let expected = if claims.len() > 5 { None } else { Some(Outcome::Lost) };
        assert_eq!(rig.outcome(request), expected);
    }
}

#[test]
fn the_claim_of_the_new_leader_itself_takes_the_lead_from_the_old_one() {
    let mut rig = Rig::new(&["a:1", "a:2"]);
    let name = domain(FIRST_TOKEN, 1);
    let first = rig.open(0, &banner(&name, "a:1"), "La:1\n");
    let second = rig.open(1, &banner(&name, "a:2"), "La:1\n");
    rig.say(second, b"La:2\n");
    rig.ask("k", 5);
    assert_eq!((rig.written(first).len(), rig.written(second).len()), (0, 1));
}

#[test]
fn where_nobody_is_known_to_lead_nodes_are_asked_in_turn() {
    let mut rig = Rig::new(&["a:1", "a:2", "a:3"]);
    let name = domain(FIRST_TOKEN, 1);
    let sessions = [1, 2, 3].map(|number| rig.open(number - 1, &banner(&name, &format!("a:{number}")), "\n"));
    for _ in 0..6 {
        rig.ask("k", 5);
    }
    assert!(!rig.core.is_ready());
    assert_eq!(sessions.map(|session| rig.written(session).len()), [2, 2, 2]);
}

#[test]
fn a_node_without_membership_is_not_asked_and_read_anew_once_it_has_one() {
    let mut rig = Rig::new(&["a:1"]);
    let session = rig.open(0, "TICKETING/1+x+n=a:1 0123456789abcdef0123456789abcdef\n", "\n");
    rig.ask("k", 5);
    assert!(rig.written(session).is_empty());
    assert!(!rig.core.is_ready());
    rig.say(session, b"La:1\n");
    assert!(rig.is_over(session));
}

#[test]
fn addresses_that_were_not_configured_are_dialled_only_where_names_are_proved_and_eight_at_most() {
    for verified in [false, true] {
        let mut rig = Rig::with(&["a:1"], |settings| settings.verified = verified);
        let session = rig.open(0, &banner(&domain(FIRST_TOKEN, 1), "a:1"), "\n");
        rig.dialled.clear();
        for number in 1..=20 {
            rig.say(session, format!("Lb:{number}\n").as_bytes());
            rig.say(session, format!("Lb:{number}\n").as_bytes());
        }
        assert_eq!(rig.dialled.len(), if verified { 20 } else { 0 });
        assert_eq!(
            rig.core.connections.iter().filter(|one| !one.configured).count(),
            if verified { 8 } else { 0 }
        );
    }
}

#[test]
fn an_address_that_was_not_configured_is_dropped_after_five_failures_unless_it_leads() {
    let mut rig = Rig::with(&["a:1"], |settings| settings.verified = true);
    let session = rig.open(0, &banner(&domain(FIRST_TOKEN, 1), "a:1"), "Lb:1\n");
    let id = rig.core.connections.last().unwrap().id;
    let end = || Some(End::new(EndKind::Io, "refused"));
    for _ in 0..9 {
        assert!(rig.core.down(id, end(), rig.now).is_some());
    }
    rig.say(session, b"La:1\n");
    assert!(rig.core.down(id, end(), rig.now).is_none());
    assert!(!rig.core.is_wanted(id));
}

#[test]
fn the_domain_with_the_highest_first_token_that_serves_is_followed() {
    let mut rig = Rig::new(&["a:1", "a:2"]);
    let (old, new) = (domain(FIRST_TOKEN, 1), domain(FIRST_TOKEN + 1, 2));
    let first = rig.open(0, &banner(&old, "a:1"), "La:1\n");
    let ticket = rig.ticket("k", FIRST_TOKEN + 1, &old);
    assert!(!rig.core.domains.is_over(Some(&old.as_str().into())));
    // A banner alone changes nothing.
    let second = rig.open(1, &banner(&new, "a:2"), "\n");
    assert_eq!(rig.core.domain().map(|name| name.to_string()), Some(old.clone()));
    let mut errand = rig.errand("k", FIRST_TOKEN + 1);
    errand.ticket = Some(ticket);
    rig.core.run(errand, rig.now);
    rig.say(second, b"La:2\n");
    assert_eq!(rig.core.domain().map(|name| name.to_string()), Some(new));
    assert!(rig.is_over(first));
    assert!(rig.core.domains.is_over(Some(&old.as_str().into())));
    // Its release was answered without being sent.
    assert!(rig.written(second).is_empty());
    rig.assert_clean();
    // And what is older is never followed again.
    let first = rig.open(0, &banner(&old, "a:1"), "La:1\n");
    rig.ask("k", 5);
    assert_eq!((rig.written(first).len(), rig.written(second).len()), (0, 1));
}

#[test]
fn a_domain_that_cannot_be_closes_its_session() {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let ahead = domain((unix + 61 * 86_400) << 20, 1);
    let mut rig = Rig::new(&["a:1", "a:2"]);
    let session = rig.open(0, &banner(&ahead, "a:1"), "La:1\n");
    assert!(rig.is_over(session));
    let session = rig.open(0, &banner(&domain(FIRST_TOKEN, 1), "a:1"), "La:1\n");
    assert!(!rig.is_over(session));
    let twin = rig.open(1, &banner(&domain(FIRST_TOKEN, 2), "a:2"), "La:2\n");
    assert!(rig.is_over(twin));
    let mut rig = Rig::with(&["a:1"], |settings| settings.allow_future_domain = true);
    let session = rig.open(0, &banner(&ahead, "a:1"), "La:1\n");
    assert!(!rig.is_over(session));
}

#[test]
fn standalone_is_never_preferred_to_a_cluster() {
    let mut rig = Rig::new(&["a:1", "a:2"]);
    let cluster = domain(FIRST_TOKEN, 1);
    rig.open(0, &banner(&cluster, "a:1"), "La:1\n");
    let alone = banner(&domain(FIRST_TOKEN + 9, 2), "a:2").replace("+x", "+x+s");
    rig.open(1, &alone, "La:2\n");
    assert_eq!(rig.core.domain().map(|name| name.to_string()), Some(cluster));
}

#[test]
fn where_every_address_refuses_the_token_nobody_waits() {
    let mut rig = Rig::new(&["a:1", "a:2"]);
    let waiting = rig.ask("k", 60);
    for number in [0, 1] {
        assert_eq!(rig.outcome(waiting), None);
        let session = rig.connect(number);
        rig.say(session, banner(&domain(FIRST_TOKEN, 1), "a:1").as_bytes());
        rig.say(session, b"Eauth_failed\n");
        let id = rig.core.connections[number].id;
        rig.core.down(id, None, rig.now);
    }
    assert!(matches!(rig.outcome(waiting), Some(Outcome::Refused(End { kind: EndKind::Auth, .. }))));
    assert!(rig.core.refused_token().is_some());
    let at_once = rig.ask("k", 60);
    assert!(matches!(rig.outcome(at_once), Some(Outcome::Refused(_))));
    // A token that is taken later ends the refusal.
    let session = rig.open(0, &banner(&domain(FIRST_TOKEN, 1), "a:1"), "La:1\n");
    rig.ask("k", 60);
    assert_eq!(rig.written(session).len(), 1);
}

#[test]
fn pauses_between_tries_double_to_a_cap_and_a_session_of_a_second_resets_them() {
    let mut rig = Rig::new(&["a:1", "a:2"]);
    let id = rig.core.connections[0].id;
    let end = || Some(End::new(EndKind::Io, "refused"));
    for whole in [100, 200, 400, 800, 1_600, 3_200, 3_200] {
        let pause = rig.core.down(id, end(), rig.now).unwrap() / MILLISECOND;
        assert!((whole / 2..=whole).contains(&pause), "{pause} of {whole}");
    }
    let here = banner(&domain(FIRST_TOKEN, 1), "a:1");
    for (lasts, whole) in [(SECOND / 2, 3_200), (SECOND, 100)] {
        let session = rig.open(0, &here, "La:1\n");
        rig.now += lasts;
        rig.core.transport_lost(session, "gone", rig.now);
        let pause = rig.core.down(id, None, rig.now).unwrap() / MILLISECOND;
        assert!((whole / 2..=whole).contains(&pause), "{pause} of {whole}");
    }
}

#[test]
fn any_published_server_will_do() {
    let mut rig = Rig::new(&["a:1", "a:2"]);
    let session = rig.open(0, &published_banner(), "");
    assert!(rig.core.is_ready());
    let request = rig.ask("k", 0);
    let asked = rig.written(session).remove(0);
    rig.say(session, &asked.granted(77));
    let Some(Outcome::Granted(grant)) = rig.outcome(request) else { panic!("not granted") };
    assert_eq!((grant.token, grant.domain), (77, None));
}

#[test]
fn a_runtime_that_ends_loses_what_was_sent_and_the_next_one_begins_anew() {
    let (mut rig, session) = Rig::leading();
    let sent = rig.ask("sent", 5);
    let owner = rig.written(session)[0].number;
    let unsent = rig.ask("unsent", 5);
    let errand = rig.errand("k", FIRST_TOKEN + 1);
    rig.core.run(errand, rig.now);
    let task = rig.core.connections[0].id;
    rig.core.task_gone(task);
    rig.act();
    let said: Vec<_> = rig.last_words.drain(..).map(|one| (one.opcode, one.number, one.key)).collect();
    assert_eq!(said, [(b'C', owner, "sent".to_owned()), (b'R', FIRST_TOKEN + 1, "k".to_owned())]);
    assert_eq!(rig.core.orders(session, true, &mut Vec::new(), rig.now), Orders::Leave);
    let current = rig.core.domain().cloned();
    rig.core.compensate(FIRST_TOKEN + 2, "late".into(), current, rig.now);
    rig.act();
    assert_eq!((rig.last_words[0].opcode, rig.last_words[0].number), (b'R', FIRST_TOKEN + 2));
    assert_eq!(rig.outcome(sent), Some(Outcome::Lost));
    assert_eq!(rig.outcome(unsent), Some(Outcome::Shut));
    rig.assert_clean();
    assert!(!rig.core.bound() && !rig.core.has_tasks());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    rig.core.bind(runtime.handle().clone());
    let session = rig.open(0, &banner(&domain(FIRST_TOKEN, 1), "a:1"), "La:1\n");
    rig.ask("k", 5);
    assert_eq!(rig.written(session).len(), 1);
}
