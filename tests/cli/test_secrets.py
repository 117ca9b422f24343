"""`token` and `cert` on a cluster's folder whose nodes are scripted, or do not run at all."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Tell
from ticketing.cli.door import Knock
from ticketing.cli.reloading import Reloaded
from ticketing.config.certificate_files import read_certificates
from ticketing.config.client_file import read_client_file
from ticketing.config.cluster_folder import plan_cluster, write_cluster
from ticketing.config.edit import set_values
from ticketing.config.load import load_node
from ticketing.config.secret_files import fingerprint, read_secrets


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("TICKETING_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "ticketing-cluster"
    write_cluster(plan_cluster(nodes=3, tls=True, now_ms=1), folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ticketing.cli.tokens.reload_node", reloaded)
    monkeypatch.setattr("ticketing.cli.cert.reload_node", reloaded)
    return folder


def reloaded(loaded: object, _reason: str) -> Reloaded:
    return Reloaded(loaded.settings.node.place, "reloaded")  # type: ignore[attr-defined]


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> dict[str, Knock]:
    """What each client address says to any token; those that are not listed let it in."""
    found: dict[str, Knock] = {}
    monkeypatch.setattr("ticketing.cli.tokens.knock", lambda address, *_: found.get(address, Knock("in")))
    return found


def tokens(cluster: Path, number: int = 1, kind: str = "client") -> list[str]:
    node = load_node(cluster / f"node-{number}").settings.node
    if kind == "client":
        return list(node.client_tokens)
    return [secret.decode() for secret in node.peer_secrets]


def test_a_rotation_adds_uses_and_removes_without_ever_showing_a_token(
    cluster: Path, doors: dict[str, Knock], tell: Tell
) -> None:
    (old,) = tokens(cluster)
    code, out, err = tell("token", "add")
    new = tokens(cluster)[1]
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == [
        f"client token {fingerprint(new)} added to the files of node-1, node-2, node-3",
        "loaded by node-1, node-2, node-3",
    ]
    assert [tokens(cluster, n) for n in (1, 2, 3)] == [[old, new]] * 3
    assert read_client_file(cluster / "client.toml").token == new
    listed = tell("token", "list")[1]
    code, out, err = tell("token", "remove", "--old", "--yes")
    removed = f"client token {fingerprint(old)} removed from the files of node-1, node-2, node-3\n"
    assert (code, out) == (0, removed + "loaded by node-1, node-2, node-3\n")
    assert [tokens(cluster, n) for n in (1, 2, 3)] == [[new]] * 3
    for text in (listed, out, err):
        assert old not in text
        assert new not in text


def test_the_list_says_which_one_is_used(cluster: Path, tell: Tell) -> None:
    (old,) = tokens(cluster)
    name = fingerprint(old)
    rows = "".join(f"node-{n}  {name}  yes\n" for n in (1, 2, 3))
    assert tell("token", "list") == (0, f"PLACE   TOKEN         USED HERE\n{rows}", "")
    code, out, _ = tell("token", "list", "-o", "json", "--dir", str(cluster / "node-2"))
    assert (code, json.loads(out)) == (
        0,
        {"kind": "client", "tokens": [{"place": "node-2", "fingerprint": name, "used": True}]},
    )


def test_client_toml_is_not_changed_before_every_node_lets_the_token_in(
    cluster: Path, doors: dict[str, Knock], tell: Tell
) -> None:
    (old,) = tokens(cluster)
    doors["127.0.0.1:5226"] = Knock("auth_failed")
    code, out, err = tell("token", "add", "-o", "json")
    told = json.loads(out)
    assert (code, told["client_config"], told["changed"]) == (0, None, ["node-1", "node-2", "node-3"])
    assert "127.0.0.1:5226: does not accept it yet" in err
    assert read_client_file(cluster / "client.toml").token == old
    assert tell("token", "use", told["fingerprint"])[0] == 9
    doors.clear()
    assert tell("token", "use", told["fingerprint"][:6])[0] == 0
    assert fingerprint(read_client_file(cluster / "client.toml").token) == told["fingerprint"]


def test_an_interrupted_addition_goes_on_with_the_same_token(
    cluster: Path, doors: dict[str, Knock], tell: Tell
) -> None:
    assert tell("token", "add", "--dir", str(cluster / "node-1"))[0] == 0
    new = tokens(cluster, 1)[1]
    assert tokens(cluster, 2) != tokens(cluster, 1)
    code, out, err = tell("token", "add")
    assert code == 0
    assert f"{fingerprint(new)} added to the files of node-2, node-3" in out
    assert "going on with" in err
    assert tokens(cluster, 3)[1] == new


def test_a_token_of_ones_own_comes_from_a_file(cluster: Path, doors: dict[str, Knock], tell: Tell) -> None:
    file = cluster.parent / "token"
    file.write_text("short\n")
    assert tell("token", "add", "--from", str(file))[0] == 2
    file.write_text("a-token-of-my-own-choice\n")
    assert tell("token", "add", "--from", str(file), "--out", str(cluster.parent / "copy"))[0] == 0
    assert tokens(cluster, 2)[1] == "a-token-of-my-own-choice"
    assert (cluster.parent / "copy").stat().st_mode & 0o777 == 0o600


def test_peer_secrets_are_two_at_most_and_the_new_one_stays(cluster: Path, tell: Tell) -> None:
    (old,) = tokens(cluster, kind="peer")
    assert tell("token", "add", "--kind", "peer")[0] == 0
    assert tokens(cluster, kind="peer")[0] == old
    new = tokens(cluster, kind="peer")[1]
    code, _, err = tell("token", "add", "--kind", "peer")
    assert code == 2
    assert "a rotation is under way" in err
    code, out, _ = tell("token", "remove", "--kind", "peer", "--old", "--yes", "-o", "json")
    assert (code, json.loads(out)["fingerprints"]) == (0, [fingerprint(old)])
    assert [tokens(cluster, n, "peer") for n in (1, 2, 3)] == [[new]] * 3


def test_what_would_lock_out_or_let_everybody_in_is_refused(
    cluster: Path, doors: dict[str, Knock], tell: Tell
) -> None:
    (old,) = tokens(cluster)
    code, _, err = tell("token", "remove", fingerprint(old), "--yes")
    assert code == 1
    assert "client.toml uses that token" in err
    (secret,) = tokens(cluster, kind="peer")
    code, _, err = tell("token", "remove", "--kind", "peer", fingerprint(secret), "--yes")
    assert code == 2
    assert "would be left without any" in err
    assert tell("token", "remove", "--old", "--yes")[0] == 10
    assert tell("token", "remove", "--old", "--yes", "-o", "json")[1].startswith('{"kind": "client"')
    assert [tokens(cluster), tokens(cluster, kind="peer")] == [[old], [secret]]


def accepted(cluster: Path, kind: str) -> list[tuple[str, ...]]:
    """By node."""
    return [node.values for node in read_secrets([load_node(cluster / f"node-{n}") for n in (1, 2, 3)], kind)]


def files(cluster: Path) -> list[bytes]:
    return [(cluster / f"node-{n}/node.toml").read_bytes() for n in (1, 2, 3)]


USER_FILES = {"client": "client.toml", "admin": "admin.toml"}


class TestNodesThatDiffer:
    """A removal that one node refuses has changed none: those before it would share no secret with the rest."""

    @pytest.mark.parametrize("kind", ["client", "peer", "admin"])
    @pytest.mark.parametrize("reached", [1, 2])
    def test_the_old_ones_stay_while_a_node_lacks_the_one_that_is_kept(
        self, cluster: Path, doors: dict[str, Knock], tell: Tell, kind: str, reached: int
    ) -> None:
        assert tell("token", "add", "--kind", kind, "--dir", str(cluster / f"node-{reached}"))[0] == 0
        new = accepted(cluster, kind)[reached - 1][1]
        if kind in USER_FILES:
            set_values(cluster / USER_FILES[kind], {"token": new})
        before = files(cluster)
        code, out, err = tell("token", "remove", "--kind", kind, "--old", "--yes")
        assert (code, out) == (2, "")
        missing = " and ".join(f"node-{n}" for n in (1, 2, 3) if n != reached)
        assert f"{fingerprint(new)}, which would be kept, is missing on {missing}\n" in err
        assert f"hint: add it there first: `ticketing token add --kind {kind}`" in err
        assert files(cluster) == before

        assert tell("token", "add", "--kind", kind)[0] == 0
        assert tell("token", "remove", "--kind", kind, "--old", "--yes")[0] == 0
        assert accepted(cluster, kind) == [(new,)] * 3

    @pytest.mark.parametrize("kind", ["client", "peer", "admin"])
    def test_a_named_one_stays_everywhere_where_one_node_has_no_other(
        self, cluster: Path, doors: dict[str, Knock], tell: Tell, kind: str
    ) -> None:
        (old,) = accepted(cluster, kind)[1]
        assert tell("token", "add", "--kind", kind, "--dir", str(cluster / "node-1"))[0] == 0
        if kind in USER_FILES:
            set_values(cluster / USER_FILES[kind], {"token": accepted(cluster, kind)[0][1]})
        before = files(cluster)
        code, out, err = tell("token", "remove", "--kind", kind, fingerprint(old), "--yes")
        assert (code, out) == (2, "")
        assert "node-2/node.toml" in err
        assert "would be left without any" in err
        assert files(cluster) == before

    def test_peers_are_not_left_with_secrets_that_the_others_do_not_have(
        self, cluster: Path, tell: Tell
    ) -> None:
        (old,) = tokens(cluster, kind="peer")
        for number in (1, 2, 3):
            tell("token", "add", "--kind", "peer", "--dir", str(cluster / f"node-{number}"))
        before = files(cluster)
        code, _, err = tell("token", "remove", "--kind", "peer", fingerprint(old), "--yes")
        assert code == 2
        own = fingerprint(tokens(cluster, 1, "peer")[1])
        assert f"node-1 would prove itself with {own}, which is missing on node-2 and node-3" in err
        assert files(cluster) == before

    def test_an_addition_that_one_node_has_no_room_for_changes_none(self, cluster: Path, tell: Tell) -> None:
        file = cluster.parent / "secret"
        file.write_text("a-secret-of-my-own-choice\n")
        tell("token", "add", "--kind", "peer", "--dir", str(cluster / "node-2"))
        before = files(cluster)
        out = cluster.parent / "copy"
        words = ("token", "add", "--kind", "peer", "--from", str(file), "--out", str(out))
        code, _, err = tell(*words)
        assert code == 2
        assert "node-2/node.toml: two peer secrets are accepted already" in err
        assert files(cluster) == before
        assert not out.exists()

    @pytest.mark.parametrize("words", [["add"], ["remove", "--old", "--yes"]], ids=["add", "remove"])
    def test_a_file_that_no_program_can_change_is_met_before_the_others_are_changed(
        self, cluster: Path, doors: dict[str, Knock], tell: Tell, words: list[str]
    ) -> None:
        tell("token", "add")
        file = cluster / "node-2/node.toml"
        lines = file.read_text().splitlines()
        own = [line for line in lines if line.startswith(("client_tokens", "peer_secrets", "admin_token"))]
        rest = [line for line in lines if line not in own and line != "[secrets]"]
        file.write_text("\n".join([f"secrets = {{ {', '.join(own)} }}", *rest]))
        before = files(cluster)
        code, _, err = tell("token", *words)
        assert code == 2
        assert "node-2/node.toml: cannot be changed by program" in err
        assert files(cluster) == before

    def test_a_disk_that_fails_half_way_is_told_with_what_is_done(
        self, cluster: Path, doors: dict[str, Knock], tell: Tell
    ) -> None:
        # A folder with a name that the new file would have: it can neither be removed nor written over.
        obstacle = cluster / "node-2/.node.toml.new"
        obstacle.mkdir()
        code, _, err = tell("token", "add")
        assert code == 2
        assert "node-2/node.toml: cannot write: " in err
        assert "error: until then only the files of node-1 were changed\n" in err
        assert "run the same again: it goes on" in err
        obstacle.rmdir()
        assert tell("token", "add")[0] == 0
        assert len({*accepted(cluster, "client")}) == 1


def test_a_broken_client_file_is_met_before_any_node_is_changed(
    cluster: Path, doors: dict[str, Knock], tell: Tell
) -> None:
    (cluster / "client.toml").write_text("addrs = []\n")
    before = files(cluster)
    code, _, err = tell("token", "add")
    assert code == 2
    assert "client.toml:1: addrs: is empty" in err
    assert files(cluster) == before


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_client_file_that_cannot_be_written_is_told_beside_what_was_done(
    cluster: Path, doors: dict[str, Knock], tell: Tell, form: str
) -> None:
    (cluster / ".client.toml.new").mkdir()
    code, out, err = tell("token", "add", "-o", form)
    new = tokens(cluster)[1]
    assert code == 2
    assert fingerprint(new) in out
    assert "node-1" in out
    assert "client.toml: cannot write: " in err
    assert f"hint: when that is mended: ticketing token use {fingerprint(new)}\n" in err
    (cluster / ".client.toml.new").rmdir()
    assert tell("token", "use", fingerprint(new))[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["token", "add", "--kind", "root"], "--kind must be one of client, peer, admin, not 'root'"),
        (["token", "use", "ab", "--kind", "peer"], "used by the nodes alone"),
        (["token", "remove"], "either TOKEN or --old is wanted"),
        (["token", "remove", "zz"], "no token here begins with 'zz'"),
        (["token", "use", ""], "no token here begins with ''"),
        (["token", "list", "--dir", "nowhere"], "there is no node's file here (looked in nowhere"),
        (["cert", "renew", "--node", "7"], "--node: there is no node-7 here"),
        (["cert", "show", "--days", "x"], "--days must be a whole number"),
    ],
)
def test_mistakes_are_told(cluster: Path, tell: Tell, words: list[str], message: str) -> None:
    code, out, err = tell(*words)
    assert (code, out) == (2, "")
    assert message in err


def test_a_removal_is_confirmed(cluster: Path, doors: dict[str, Knock], tell: Tell) -> None:
    tell("token", "add")
    code, _, err = tell("token", "remove", "--old")
    assert code == 2
    assert "will open no session any more" in err
    assert len(tokens(cluster)) == 2


def test_a_node_that_does_not_reload_is_a_failure_and_one_elsewhere_a_warning(
    cluster: Path, doors: dict[str, Knock], tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = {"node-1": "reloaded", "node-2": "unreachable", "node-3": "refused"}

    def answer(loaded: object, _reason: str) -> Reloaded:
        place = loaded.settings.node.place  # type: ignore[attr-defined]
        return Reloaded(place, outcomes[place], "why")

    monkeypatch.setattr("ticketing.cli.tokens.reload_node", answer)
    code, _, err = tell("token", "add")
    assert code == 1
    assert "node-2 was not reached (why): where it runs on another host, copy" in err
    assert "node-3 did not reload: why" in err
    outcomes["node-3"] = "unreachable"
    assert tell("token", "add")[0] == 0


def test_certificates_are_shown_with_names_dates_and_no_fault(cluster: Path, tell: Tell) -> None:
    code, out, err = tell("cert", "show")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert [line[0] for line in lines] == [
        "PLACE",
        *["node-1", "authority", "node-2", "authority", "node-3", "authority"],
    ]
    assert "localhost," in lines[1]
    code, out, _ = tell("cert", "show", "-o", "json", "--dir", str(cluster / "node-1"))
    row = json.loads(out)["certificates"][0]
    assert (code, row["place"], row["days_left"], row["faults"]) == (0, "node-1", 396, [])


def test_a_certificate_that_ends_soon_is_warned_of_and_unhealthy_where_checked(
    cluster: Path, tell: Tell
) -> None:
    code, _, err = tell("cert", "show", "--days", "400")
    assert code == 0
    assert err.count("ends in 396 days: `ticketing cert renew`") == 3
    assert tell("cert", "show", "--days", "400", "--check")[0] == 9


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        ("key", "does not belong to the key"),
        ("authority", "is not signed by an authority in"),
        ("name", "does not name 127.0.0.9, which clients dial"),
    ],
)
def test_what_peers_would_object_to_is_told(cluster: Path, tell: Tell, spoil: str, fault: str) -> None:
    node = cluster / "node-1"
    if spoil == "key":
        (node / "tls/node.key").write_bytes((cluster / "node-2/tls/node.key").read_bytes())
    elif spoil == "authority":
        other = cluster.parent / "other"
        write_cluster(plan_cluster(nodes=1, tls=True, now_ms=1), other)
        (node / "tls/ca.pem").write_bytes((other / "node-1/tls/ca.pem").read_bytes())
    else:
        text = (
            (node / "node.toml").read_text().replace('client = "127.0.0.1:5225"', 'client = "127.0.0.9:5225"')
        )
        (node / "node.toml").write_text(text)
    code, _, err = tell("cert", "show")
    assert code == 9
    assert fault in err


def test_renewal_signs_anew_with_the_names_there_were_and_a_new_key(cluster: Path, tell: Tell) -> None:
    file = cluster / "node-2/tls/node.pem"
    before = (file.read_bytes(), (cluster / "node-2/tls/node.key").read_bytes())
    names = read_certificates(file)[0].names
    code, out, err = tell("cert", "renew", "--node", "2")
    assert (code, err) == (0, "")
    assert out.startswith("node-2: renewed until ")
    assert out.endswith(", reloaded\n")
    assert file.read_bytes() != before[0]
    assert (cluster / "node-2/tls/node.key").read_bytes() != before[1]
    assert read_certificates(file)[0].names == names
    assert tell("cert", "show")[0] == 0
    assert {path.stat().st_mode & 0o777 for path in (cluster / "node-2/tls").iterdir()} == {0o600}


def pairs(cluster: Path) -> list[tuple[bytes, bytes]]:
    """By node: its key and its certificate."""
    homes = [cluster / f"node-{n}/tls" for n in (1, 2, 3)]
    return [((home / "node.key").read_bytes(), (home / "node.pem").read_bytes()) for home in homes]


def test_a_certificate_that_one_node_would_not_trust_is_given_to_none(cluster: Path, tell: Tell) -> None:
    other = cluster.parent / "other"
    write_cluster(plan_cluster(nodes=1, tls=True, now_ms=1), other)
    (cluster / "node-2/tls/ca.pem").write_bytes((other / "node-1/tls/ca.pem").read_bytes())
    before = pairs(cluster)
    code, out, err = tell("cert", "renew")
    assert (code, out) == (2, "")
    assert "node-2/tls/ca.pem: does not hold the authority" in err
    assert pairs(cluster) == before


def test_a_renewal_that_stops_half_way_leaves_whole_pairs_and_says_which_are_new(
    cluster: Path, tell: Tell
) -> None:
    obstacle = cluster / "node-2/tls/.node.pem.new"
    obstacle.mkdir()
    before = pairs(cluster)
    code, _, err = tell("cert", "renew")
    assert code == 2
    assert "node-2/tls/node.pem: cannot write: " in err
    assert "error: until then only the certificates of node-1 were changed\n" in err
    after = pairs(cluster)
    assert after[0] != before[0]
    assert after[1:] == before[1:]
    assert tell("cert", "show")[0] == 0


def test_renewal_as_json_and_without_the_authority(cluster: Path, tell: Tell) -> None:
    code, out, _ = tell("cert", "renew", "-o", "json")
    rows = json.loads(out)["renewed"]
    assert (code, [row["place"] for row in rows]) == (0, ["node-1", "node-2", "node-3"])
    ends = datetime.datetime.fromtimestamp(rows[0]["ends_ms"] / 1000, datetime.UTC)
    assert (ends - datetime.datetime.now(datetime.UTC)).days >= 396
    (cluster / "ca/ca.key").unlink()
    code, _, err = tell("cert", "renew")
    assert code == 2
    assert "run this where the cluster's certificate authority is kept" in err


def test_without_tls_there_is_nothing_to_show(tmp_path: Path, tell: Tell) -> None:
    write_cluster(plan_cluster(nodes=3, tls=False, now_ms=1), tmp_path / "plain")
    code, _, err = tell("cert", "show", "--dir", str(tmp_path / "plain"))
    assert code == 2
    assert "no node here has TLS" in err
