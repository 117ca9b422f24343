"""TLS over memory buffers, and what certificates are good for."""

from __future__ import annotations

import datetime
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.certificates import Authority, make_authority
from tests.server.scripted import open_door
from ticketing.server.settings import TlsFiles
from ticketing.server.tls import (
    HANDSHAKE_BYTES_MAX,
    PIECE,
    TlsContexts,
    TlsExcessError,
    TlsFilesError,
    TlsStream,
    certifies,
    check_own_certificate,
    describe_not_tls,
    first_record_complete,
)

Run = Callable[[Any], Any]


@pytest.fixture(scope="module")
def contexts(authority: Authority) -> TlsContexts:
    return TlsContexts(authority.issue("tls", "127.0.0.1", "node.example"))


def joined(contexts: TlsContexts) -> tuple[TlsStream, TlsStream]:
    dialler = TlsStream(contexts.peer_outbound, dialled_host="node.example")
    acceptor = TlsStream(contexts.peer_inbound)
    done = dialler.advance(b"")
    while not (acceptor.advance(dialler.outgoing()) and done):
        done = dialler.advance(acceptor.outgoing())
    return dialler, acceptor


@settings(max_examples=40, deadline=None)
@given(messages=st.lists(st.binary(min_size=1, max_size=40_000), max_size=4), cut=st.integers(1, 20_000))
def test_bytes_arrive_the_same_however_the_ciphertext_is_cut(
    contexts: TlsContexts, messages: list[bytes], cut: int
) -> None:
    dialler, acceptor = joined(contexts)
    sealed = b"".join(dialler.encrypt(message) for message in messages) + dialler.close_notify()
    received = bytearray()
    ended = False
    for start in range(0, len(sealed), cut):
        assert not ended
        chunks, ended = acceptor.decrypt(sealed[start : start + cut], 0.0)
        received += b"".join(chunks)
    assert received == b"".join(messages)
    assert ended


def test_a_changed_byte_is_an_error(contexts: TlsContexts) -> None:
    dialler, acceptor = joined(contexts)
    sealed = bytearray(dialler.encrypt(b"hello"))
    sealed[-1] ^= 1
    with pytest.raises(ssl.SSLError):
        acceptor.decrypt(bytes(sealed), 0.0)


def test_versions_before_1_2_are_refused(contexts: TlsContexts, authority: Authority) -> None:
    old = authority.client_context()
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    dialler = TlsStream(old, dialled_host="127.0.0.1")
    dialler.advance(b"")
    with pytest.raises(ssl.SSLError):
        TlsStream(contexts.client).advance(dialler.outgoing())


def test_the_acceptor_learns_whom_the_certificate_names(contexts: TlsContexts) -> None:
    _, acceptor = joined(contexts)
    assert acceptor.certified_hosts() == ("127.0.0.1", "node.example")


@pytest.mark.parametrize(
    ("host", "fits"),
    [
        ("127.0.0.1", True),
        ("NODE.example.", True),
        ("::1", True),
        ("0:0:0:0:0:0:0:1", True),
        ("127.0.0.2", False),
        ("example", False),
        ("*.example", False),
    ],
)
def test_a_certificate_is_for_the_hosts_that_it_names(host: str, fits: bool) -> None:
    assert certifies(("127.0.0.1", "node.example", "::1"), host) is fits


def test_nothing_is_certified_by_a_certificate_without_names() -> None:
    assert not certifies((), "127.0.0.1")


@pytest.mark.parametrize("missing", ["ca", "certificate", "key"])
def test_a_file_that_is_missing_or_no_pem_is_named(
    tmp_path: Path, authority: Authority, missing: str
) -> None:
    files = authority.issue("tls-faults", "127.0.0.1")
    paths = {"ca": files.ca, "certificate": files.certificate, "key": files.key}
    paths[missing] = tmp_path / "none.pem"
    with pytest.raises(TlsFilesError, match=r"none\.pem"):
        TlsContexts(TlsFiles(**paths))
    paths[missing].write_text("nonsense")
    with pytest.raises(TlsFilesError, match=r"none\.pem"):
        TlsContexts(TlsFiles(**paths))


def test_a_key_of_another_certificate_is_told(authority: Authority) -> None:
    one, other = authority.issue("tls-one", "127.0.0.1"), authority.issue("tls-other", "127.0.0.1")
    with pytest.raises(TlsFilesError, match="mismatch"):
        TlsContexts(TlsFiles(ca=one.ca, certificate=one.certificate, key=other.key))


def test_a_first_record_is_complete_when_its_length_is_there() -> None:
    record = b"\x16\x03\x01\x00\x03abc"
    assert [first_record_complete(record[:n]) for n in range(9)] == [False] * 8 + [True]
    assert first_record_complete(b"G"), "what is no TLS need not be waited for"


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (b"\x16\x03", None),
        (b"", None),
        (b"GET /", "looks like HTTP without TLS"),
        (b"SSH-2.0", "looks like SSH"),
        (b"\0\0\0\x20\x01TKTPEER\x01", "looks like a peer without TLS"),
        (b"\0\0", "does not look like TLS"),
    ],
)
def test_what_is_not_tls_is_described(start: bytes, told: str | None) -> None:
    assert describe_not_tls(start) == told


def test_the_own_certificate_is_judged_as_peers_would(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("tls-own", "127.0.0.1", ends_in=datetime.timedelta(days=3))
    ends_ms = check_own_certificate(TlsContexts(files), "127.0.0.1")
    assert abs(ends_ms / 1000 - time.time() - 3 * 24 * 3600) < 60
    with pytest.raises(TlsFilesError, match="mismatch"):
        check_own_certificate(TlsContexts(files), "elsewhere.example")
    ended = authority.issue("tls-ended", "127.0.0.1", ends_in=datetime.timedelta(days=-1))
    with pytest.raises(TlsFilesError, match="expired"):
        check_own_certificate(TlsContexts(ended), "127.0.0.1")
    stranger = make_authority(tmp_path / "ca").issue("tls-own", "127.0.0.1")
    foreign = TlsFiles(ca=authority.ca, certificate=stranger.certificate, key=stranger.key)
    with pytest.raises(TlsFilesError, match="does not pass"):
        check_own_certificate(TlsContexts(foreign), "127.0.0.1")


@pytest.mark.parametrize(
    ("days", "told"), [(30, None), (3, "certificate ends soon"), (-1, "certificate unfit")]
)
def test_a_certificate_near_its_end_alarms_and_does_not_stop_the_node(
    on_loop: Run, tmp_path: Path, authority: Authority, days: int, told: str | None
) -> None:
    async def scene() -> None:
        files = authority.issue("tls-alarm", "127.0.0.1", ends_in=datetime.timedelta(days=days))
        async with open_door(tmp_path, tls=files) as door:
            await door.service.reload()  # which ends with the check
            assert ("certificate" in door.logged()) is (told is not None)
            assert told is None or told in door.logged()
            assert (door.service.certificate_fault is None) is (days > 0)

    on_loop(scene())


def test_a_handshake_without_end_is_refused(contexts: TlsContexts) -> None:
    with pytest.raises(TlsExcessError):
        TlsStream(contexts.client).advance(bytes(HANDSHAKE_BYTES_MAX + 1))


def test_ciphertext_that_says_nothing_is_bounded_a_second(contexts: TlsContexts) -> None:
    """Half a record of the largest size is nothing yet; what stands in for key updates here are records never whole."""
    dialler, acceptor = joined(contexts)
    acceptor.idle_max = 3 * PIECE
    sealed = dialler.encrypt(bytes(16_000))
    for start in range(0, 3 * PIECE, PIECE):
        assert acceptor.decrypt(sealed[start : start + PIECE], 5.0) == ([], False)
    with pytest.raises(TlsExcessError):
        acceptor.decrypt(sealed[3 * PIECE : 4 * PIECE - 500], 5.5)

    dialler, acceptor = joined(contexts)
    acceptor.idle_max = 3 * PIECE
    sealed = dialler.encrypt(bytes(16_000))
    for start in range(0, 3 * PIECE, PIECE):
        acceptor.decrypt(sealed[start : start + PIECE], 5.0)
    chunks, _ended = acceptor.decrypt(sealed[3 * PIECE :], 6.5)
    assert b"".join(chunks) == bytes(16_000)


def test_single_bytes_in_records_of_their_own_are_no_excess(contexts: TlsContexts) -> None:
    dialler, acceptor = joined(contexts)
    acceptor.idle_max = PIECE
    for _ in range(2_000):
        assert acceptor.decrypt(dialler.encrypt(b"\n"), 5.0) == ([b"\n"], False)
