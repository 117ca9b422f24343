"""Slow paths: when packets arrive, in which order, and which never do."""

from __future__ import annotations

from random import Random

from tests.chaos.forwarder import WAITING_MAX, Forwarder, Path

A, B, C = b"\x0a\0\0\1", b"\x0a\0\0\2", b"\x0a\0\0\3"


def packet(number: int, source: bytes = A, target: bytes = B, size: int = 100) -> bytes:
    return b"\x45" + bytes(11) + source + target + number.to_bytes(4, "big") + bytes(size - 24)


def number_of(one: bytes) -> int:
    return int.from_bytes(one[20:24], "big")


def sent(path: Path, count: int = 500, every_s: float = 0.001) -> list[tuple[float, int]]:
    """When each of many packets arrives."""
    forwarder = Forwarder(Random(1))
    forwarder.set_path(A, B, path)
    for number in range(count):
        forwarder.take(packet(number), number * every_s)
    found: list[tuple[float, int]] = []
    while (at := forwarder.next_at()) is not None:
        found.extend((at, number_of(one)) for one in forwarder.due(at))
    return found


def test_an_unnamed_path_is_straight() -> None:
    forwarder = Forwarder(Random(1))
    forwarder.set_path(A, B, Path(delay_s=1))
    forwarder.take(packet(1, C, B), 5.0)
    forwarder.take(packet(2, B, A), 5.0)
    assert [number_of(one) for one in forwarder.due(5.0)] == [1, 2]


def test_a_delay_with_jitter_keeps_the_order() -> None:
    arrived = sent(Path(delay_s=0.05, jitter_s=0.04))
    assert [number for _, number in arrived] == list(range(500))
    assert all(0.009 < at - number * 0.001 < 0.2 for at, number in arrived)


def test_packets_overtake_each_other_and_come_twice_where_told_so() -> None:
    numbers = [number for _, number in sent(Path(0.05, 0.04, in_order=False, twice=0.1))]
    assert numbers != sorted(numbers)
    assert set(numbers) == set(range(500))
    assert 520 < len(numbers) < 580


def test_a_share_is_lost() -> None:
    assert 330 < len(sent(Path(loss=0.25))) < 420


def test_a_narrow_path_takes_its_time_and_drops_what_does_not_fit() -> None:
    arrived = sent(Path(bytes_per_s=10_000))  # 100 packets a second, 1,000 are sent
    assert 140 < len(arrived) < 160, "half a second of sending and one of queue"
    assert [number for _, number in arrived] == sorted(number for _, number in arrived)


def test_what_is_under_way_is_bounded() -> None:
    assert len(sent(Path(delay_s=1000), count=WAITING_MAX + 100)) == WAITING_MAX
