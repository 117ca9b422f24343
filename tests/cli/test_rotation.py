"""What `token` and `cert` tell of nodes on other hosts, and how the admin token and the authority are changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Tell
from tests.cli.hosts import PLACES, Hosts
from tests.cli.planes import TOKEN, Planes
from ticketing.cli import admin_client
from ticketing.cli.door import Knock
from ticketing.config.certificate_files import load_certificates, signed_by
from ticketing.config.client_file import read_admin_file
from ticketing.config.load import load_node
from ticketing.server.loaded import fingerprint

MakeHosts = Callable[..., Hosts]


@pytest.fixture
def make_hosts(planes: Planes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeHosts:
    """A cluster's folder whose nodes run elsewhere; every client port lets every token in."""
    monkeypatch.setattr("ticketing.cli.tokens.knock", lambda *_: Knock("in"))
    monkeypatch.setattr("ticketing.cli.reloading.call", plain_call)

    def make(**options: bool) -> Hosts:
        made = Hosts(planes, tmp_path / "ticketing-cluster", **options)
        monkeypatch.chdir(tmp_path)
        return made

    return make


def plain_call(access: admin_client.AdminAccess, *words: Any, **options: Any) -> dict[str, Any]:
    """The scripted planes have no TLS."""
    return admin_client.call(access._replace(tls="off"), *words, **options)


def outcomes(out: str) -> dict[str, str]:
    return {node["place"]: node["outcome"] for node in json.loads(out)["nodes"]}


class TestWhatIsReloaded:
    def test_a_node_that_has_read_other_files_is_not_said_to_have_reloaded(
        self, make_hosts: MakeHosts, tell: Tell
    ) -> None:
        hosts = make_hosts()
        code, out, err = tell("token", "add")
        assert code == 0
        assert "loaded by" not in out
        for place in PLACES:
            assert f"{place} has loaded other client tokens than in the files here" in err
            hosts.copy(place)
        code, out, err = tell("token", "remove", "--old", "--yes", "-o", "json")
        assert outcomes(out) == dict.fromkeys(PLACES, "elsewhere")

    def test_a_node_that_has_these_files_has_reloaded_and_is_named(
        self, make_hosts: MakeHosts, tell: Tell
    ) -> None:
        make_hosts(shared=True)
        code, out, err = tell("token", "add", "--kind", "peer")
        assert (code, err) == (0, "")
        assert out.splitlines()[-1] == "loaded by node-1, node-2, node-3"

    def test_each_node_is_told_of_as_it_is(self, make_hosts: MakeHosts, planes: Planes, tell: Tell) -> None:
        hosts = make_hosts(shared=True)
        hosts.silent.add("node-1")
        hosts.refused.add("node-2")
        planes.stop("node-3")
        code, out, err = tell("token", "add", "-o", "json")
        assert code == 1
        assert outcomes(out) == {"node-1": "unknown", "node-2": "refused", "node-3": "unreachable"}
        assert "node-1 has read its files and does not say what is in them" in err
        assert "node-2 did not reload: " in err
        assert "line 3: nonsense" in err

    def test_a_renewed_certificate_is_reloaded_where_it_is_the_one_that_lies_here(
        self, make_hosts: MakeHosts, tell: Tell
    ) -> None:
        hosts = make_hosts(tls=True)
        code, out, err = tell("cert", "renew", "--node", "2", "-o", "json")
        assert (code, json.loads(out)["renewed"][0]["reload"]) == (0, "elsewhere")
        assert "node-2 has loaded other certificate than in the files here" in err
        hosts.copy("node-2")
        assert hosts.reload("node-2")["certificate"] == [
            fingerprint(_der(load_certificates(hosts.folder / "node-2/tls/node.pem")[0]))
        ]


def _der(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    content: bytes = certificate.public_bytes(Encoding.DER)
    return content


class TestAdminToken:
    """Added everywhere, used when every node accepts it, the former one removed."""

    def test_it_is_rotated_like_the_others(self, make_hosts: MakeHosts, planes: Planes, tell: Tell) -> None:
        hosts = make_hosts(shared=True)
        code, out, err = tell("token", "add", "--kind", "admin", "-o", "json")
        told = json.loads(out)
        assert (code, told["admin_config"]) == (0, None), "the nodes do not accept it yet"
        assert f"ticketing token use {told['fingerprint']} --kind admin" in err
        node = load_node(hosts.folder / "node-1").settings
        assert node.admin_tokens[0] == node.admin_token == TOKEN
        new = node.admin_tokens[1]
        assert fingerprint(new) == told["fingerprint"]
        assert tell("token", "use", told["fingerprint"], "--kind", "admin")[0] == 9

        planes.tokens = {TOKEN, new}
        assert tell("token", "use", told["fingerprint"], "--kind", "admin")[0] == 0
        assert read_admin_file(hosts.folder / "admin.toml").token == new
        code, out, err = tell("token", "remove", "--kind", "admin", "--old", "--yes")
        assert (code, err) == (0, "")
        assert [load_node(hosts.folder / place).settings.admin_tokens for place in PLACES] == [(new,)] * 3
        assert new not in out
        assert tell("token", "remove", "--kind", "admin", fingerprint(new), "--yes")[0] == 1

    def test_doctor_finds_nothing_wrong_in_between(self, make_hosts: MakeHosts, tell: Tell) -> None:
        make_hosts(shared=True)
        tell("token", "add", "--kind", "admin")
        found = json.loads(tell("doctor", "--config", "ticketing-cluster", "-o", "json")[1])["findings"]
        assert [one["verdict"] for one in found if one["check"] == "tokens"] == ["ok"] * 3


class TestAuthority:
    """Both trusted, then the new one signs, then the former one goes; each step only where all nodes are ready."""

    def spread(self, hosts: Hosts) -> None:
        for place in PLACES:
            hosts.copy(place)
            hosts.reload(place)

    def test_another_authority_takes_over_without_a_moment_in_which_nodes_distrust_each_other(
        self, make_hosts: MakeHosts, tell: Tell
    ) -> None:
        hosts = make_hosts(tls=True)
        trusted = hosts.folder / "ca" / "ca.pem"
        (old,) = load_certificates(trusted)
        code, out, _ = tell("cert", "add-ca", "-o", "json")
        assert (code, outcomes(out)) == (0, dict.fromkeys(PLACES, "elsewhere"))
        _, new = load_certificates(trusted)
        assert json.loads(out)["authority"] == fingerprint(_der(new))
        assert tell("cert", "show")[0] == 0, "all still signed by the old one, which is trusted"

        code, _, err = tell("cert", "use-ca", "--yes")
        assert code == 9
        assert "node-1 does not trust both authorities yet" in err
        self.spread(hosts)
        code, out, _ = tell("cert", "use-ca", "--yes", "-o", "json")
        assert (code, len(json.loads(out)["renewed"])) == (0, 3)
        for place in PLACES:
            assert signed_by(load_certificates(hosts.folder / place / "tls/node.pem")[0], new)
        assert set(load_certificates(trusted)) == {old, new}

        code, _, err = tell("cert", "remove-ca", "--yes")
        assert code == 9
        assert "node-3 does not show the certificate that lies here" in err
        self.spread(hosts)
        code, out, _ = tell("cert", "remove-ca", "--yes", "-o", "json")
        assert (code, json.loads(out)["authorities"]) == (0, [fingerprint(_der(old))])
        for file in (trusted, *(hosts.folder / place / "tls/ca.pem" for place in PLACES)):
            assert load_certificates(file) == [new]
        self.spread(hosts)
        assert tell("cert", "remove-ca", "--yes")[0] == 10
        assert tell("cert", "show")[0] == 0
        assert sorted(path.name for path in (hosts.folder / "ca").iterdir()) == ["ca.key", "ca.pem"]

    def test_an_interrupted_step_is_gone_on_with(self, make_hosts: MakeHosts, tell: Tell) -> None:
        hosts = make_hosts(tls=True)
        first = json.loads(tell("cert", "add-ca", "-o", "json")[1])["authority"]
        again = json.loads(tell("cert", "add-ca", "-o", "json")[1])
        assert (again["authority"], again["changed"]) == (first, [])
        self.spread(hosts)
        tell("cert", "use-ca", "--yes")
        self.spread(hosts)
        assert json.loads(tell("cert", "use-ca", "--yes", "-o", "json")[1])["authority"] == first
        code, _, err = tell("cert", "add-ca")
        assert code == 2
        assert "the last change is not over" in err

    def test_one_nodes_folder_alone_does_not_part_it_from_the_others(
        self, make_hosts: MakeHosts, tell: Tell
    ) -> None:
        hosts = make_hosts(tls=True, shared=True)
        own = ("--dir", str(hosts.folder / "node-1"))
        key, shown = hosts.folder / "ca/ca.key", hosts.folder / "node-1/tls/node.pem"
        before = (key.read_bytes(), shown.read_bytes())
        assert tell("cert", "add-ca", *own)[0] == 0
        for where in ((), own):
            code, _, err = tell("cert", "use-ca", "--yes", *where)
            assert code == 2
            assert "node-2/tls/ca.pem: does not hold the new authority yet" in err
            assert (key.read_bytes(), shown.read_bytes()) == before

        assert tell("cert", "add-ca")[0] == 0
        assert tell("cert", "use-ca", "--yes", *own)[0] == 0
        trusted = (hosts.folder / "node-1/tls/ca.pem").read_bytes()
        code, _, err = tell("cert", "remove-ca", "--yes", *own)
        assert code == 2
        assert "node-2/tls/node.pem: is still signed by the former authority" in err
        assert (hosts.folder / "node-1/tls/ca.pem").read_bytes() == trusted
        assert tell("cert", "renew")[0] == 0
        assert tell("cert", "remove-ca", "--yes")[0] == 0

    def test_what_would_part_the_nodes_is_refused(self, make_hosts: MakeHosts, tell: Tell) -> None:
        hosts = make_hosts(tls=True, shared=True)
        code, _, err = tell("cert", "use-ca", "--yes")
        assert code == 2
        assert "there is no new authority" in err
        tell("cert", "add-ca")
        code, _, err = tell("cert", "use-ca")
        assert code == 2
        assert "Programs that do not have the new ca/ca.pem" in err
        former = (
            (hosts.folder / "node-2/tls/node.pem").read_bytes(),
            (hosts.folder / "node-2/tls/node.key").read_bytes(),
        )
        assert tell("cert", "use-ca", "--yes")[0] == 0
        (hosts.folder / "node-2/tls/node.key").write_bytes(former[1])
        (hosts.folder / "node-2/tls/node.pem").write_bytes(former[0])
        hosts.reload("node-2")
        code, _, err = tell("cert", "remove-ca", "--yes")
        assert code == 2
        assert "is still signed by the former authority" in err
