from __future__ import annotations

import json
import os
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ticketing.config.client_file import read_admin_file, read_client_file
from ticketing.config.cluster_folder import Cluster, plan_cluster, write_cluster
from ticketing.config.load import load_node
from ticketing.config.problems import ConfigError

HOSTS = ("a.example", "b.example", "c.example")


@pytest.fixture(autouse=True)
def _loose_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def plan(nodes: int = 3, **options: object) -> Cluster:
    return plan_cluster(nodes=nodes, now_ms=1_700_000_000_000, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("nodes", [1, 3, 5])
@pytest.mark.parametrize("tls", [False, True])
def test_what_is_written_loads_on_every_node_without_a_warning(tmp_path: Path, nodes: int, tls: bool) -> None:
    folder = tmp_path / "cluster"
    write_cluster(plan(nodes, tls=tls), folder)
    loaded = [load_node(folder / f"node-{n}") for n in range(1, nodes + 1)]
    assert [node.settings.node.place for node in loaded] == [f"node-{n}" for n in range(1, nodes + 1)]
    assert len({node.settings.node.cluster for node in loaded}) == 1
    assert all(node.warnings == () for node in loaded)
    assert [node.settings.tls is not None for node in loaded] == [tls] * nodes
    access = read_client_file(folder / "client.toml")
    assert access.warnings == ()
    assert list(access.addrs) == [place.client for place in loaded[0].settings.node.places]
    assert (access.token,) == loaded[0].settings.node.client_tokens
    admin = read_admin_file(folder / "admin.toml")
    assert dict(admin.nodes) == {place.name: place.admin for place in loaded[0].settings.node.places}
    assert admin.token == loaded[0].settings.admin_token
    assert admin.tls == access.tls == (str(folder / "ca" / "ca.pem") if tls else "off")


def test_every_file_is_born_private_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    write_cluster(plan(tls=True), folder)
    for path in [folder, *folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "mine").write_text("precious")
    with pytest.raises(ConfigError, match="nothing in it was touched"):
        write_cluster(plan(), folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["cluster", "mine"]
    assert (folder / "mine").read_text() == "precious"


def test_an_empty_folder_is_filled_and_made_private(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir(mode=0o777)
    write_cluster(plan(), folder)
    assert (folder / "node-3" / "node.toml").is_file()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_written_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        write_cluster(plan(), tmp_path / "file" / "cluster")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_permit_is_one_for_all_and_left_out_on_request(tmp_path: Path) -> None:
    write_cluster(plan(), tmp_path / "with")
    permits = {(tmp_path / "with" / f"node-{n}" / "state" / "permit.json").read_text() for n in (1, 2, 3)}
    assert len(permits) == 1
    permit = json.loads(permits.pop())
    assert permit["made_ms"] == 1_700_000_000_000
    assert len(permit["permit"]) == 32
    write_cluster(plan(permit=False), tmp_path / "without")
    write_cluster(plan(1), tmp_path / "standalone")
    for folder in ("without/node-1/state", "standalone/node-1/state"):
        assert list((tmp_path / folder).iterdir()) == []


def test_two_clusters_share_no_secret() -> None:
    one, other = plan(), plan()
    for name in ("permit", "client_token", "peer_secret", "admin_token"):
        assert getattr(one, name) != getattr(other, name)


def test_tls_is_the_default_beyond_loopback_and_its_absence_is_written_down(tmp_path: Path) -> None:
    assert not plan().tls
    assert plan(hosts=HOSTS).tls
    write_cluster(plan(hosts=HOSTS, tls=False), tmp_path / "open")
    loaded = load_node(tmp_path / "open" / "node-1")
    assert loaded.settings.insecure
    assert [warning.key for warning in loaded.warnings] == ["tls"]


def test_hosts_get_the_same_ports_and_names_listen_everywhere(tmp_path: Path) -> None:
    write_cluster(plan(hosts=HOSTS, client_port=7000), tmp_path / "names")
    settings = load_node(tmp_path / "names" / "node-2").settings
    assert settings.node.places[1] == ("node-2", "b.example:7000", "b.example:8000", "b.example:9000")
    assert settings.listen_client == "0.0.0.0:7000"
    write_cluster(plan(hosts=("fd00::1", "[fd00::2]", "FD00::3")), tmp_path / "addresses")
    settings = load_node(tmp_path / "addresses" / "node-3").settings
    assert settings.listen_client == settings.node.places[2].client == "[fd00::3]:5225"


def test_without_hosts_ports_are_counted_up_on_loopback() -> None:
    assert [place.client for place in plan(5).places] == [f"127.0.0.1:{port}" for port in range(5225, 5230)]


def test_a_first_token_reaches_the_node(tmp_path: Path) -> None:
    write_cluster(plan(first_token=123_456), tmp_path / "c")
    assert load_node(tmp_path / "c" / "node-1").settings.node.first_token_floor == 123_456


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"nodes": 2}, "2 nodes: "),
        ({"nodes": 4}, "use 3 or 5"),
        ({"hosts": HOSTS[:2]}, "given 2 times for 3 nodes"),
        ({"hosts": ("a", "a", "b")}, "a is given twice"),
        ({"hosts": ("a", "0.0.0.0", "b")}, "every address of a machine"),
        ({"hosts": ("a:1", "b", "c")}, "a port does not belong here"),
        ({"hosts": ("127.0.0.1", "b", "c")}, "some are on loopback"),
        ({"client_port": 63_534}, "must be from 1 to 63533"),
        ({"client_port": 0}, "must be from 1 to"),
        ({"first_token": 1 << 62}, "from 0 to 2"),
    ],
)
def test_what_cannot_become_a_cluster_is_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        plan(**options)  # type: ignore[arg-type]
    assert told in str(error.value)


def test_every_wrong_option_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        plan(hosts=("a", "a", "::"), client_port=70_000)
    assert {problem.key for problem in error.value.problems} == {"--host", "--client-port"}
    assert len(error.value.problems) == 3


def test_a_nodes_certificate_is_trusted_for_its_host_alone(tmp_path: Path) -> None:
    write_cluster(plan(hosts=HOSTS), tmp_path / "c")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    node = tmp_path / "c" / "node-1" / "tls"
    server.load_cert_chain(node / "node.pem", node / "node.key")
    client = ssl.create_default_context(cafile=str(node / "ca.pem"))
    client.verify_flags |= getattr(ssl, "VERIFY_X509_STRICT", 0)
    assert handshake(client, server, "a.example") is None
    assert "mismatch" in str(handshake(client, server, "b.example"))


def test_loopback_certificates_name_every_spelling(tmp_path: Path) -> None:
    write_cluster(plan(tls=True), tmp_path / "c")
    node = tmp_path / "c" / "node-1" / "tls"
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(node / "node.pem", node / "node.key")
    client = ssl.create_default_context(cafile=str(node / "ca.pem"))
    for name in ("127.0.0.1", "localhost", "::1"):
        assert handshake(client, server, name) is None


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> ssl.SSLError | None:
    """Both ends in memory; what the client says against it, or None."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                return error
    return None
