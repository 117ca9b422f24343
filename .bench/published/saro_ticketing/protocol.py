from __future__ import annotations

import base64
import hashlib
import math
import struct
from dataclasses import dataclass

from .errors import TicketError

MAX_KEY_LEN = 128
MAX_LINE_LEN = 192
_MAX_HANDSHAKE_LINE = 256

OP_ACQUIRE = ord("A")
OP_RELEASE = ord("R")
_NL = 0x0A


def auth_digest(token: str, nonce: bytes) -> str:
    digest = hashlib.sha256(token.encode() + nonce).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def validate_key(key: str) -> None:
    byte_len = len(key.encode())
    if byte_len == 0 or byte_len > MAX_KEY_LEN:
        raise TicketError("invalid_input", "key must be 1..=128 bytes")
    if any(c in key for c in " \n\r"):
        raise TicketError("invalid_input", "key must not contain spaces or newlines")


def acquire_frame(key: str, wait_secs: float, lease_secs: float, owner: int) -> bytes:
    # A[wait:u16][lease:u16][owner:u64]key\n — seconds rounded up, lease ≥ 1s.
    # A[wait:u16][lease:u16][owner:u64]key\n — 초 단위 올림, lease는 1초 이상.
    header = struct.pack(">BHHQ", OP_ACQUIRE, _ceil_secs_u16(wait_secs, 0), _ceil_secs_u16(lease_secs, 1), owner)
    return header + key.encode() + b"\n"


def release_frame(key: str, token: int) -> bytes:
    # R[token:u64]key\n — releases only while token still holds the lock.
    # 해당 토큰이 아직 락을 쥐고 있을 때만 해제된다.
    return struct.pack(">BQ", OP_RELEASE, token) + key.encode() + b"\n"


def _ceil_secs_u16(secs: float, minimum: int) -> int:
    return min(max(math.ceil(secs), minimum), 0xFFFF)


@dataclass(frozen=True, slots=True)
class Incoming:
    op: str
    text: str
    token: int = 0
    id: int = 0


# The binary header may contain 0x0a, so consume it by count first.
# 이진 헤더에 0x0a가 있을 수 있어 개수로 먼저 소비한다.
def reply_fixed(op: int) -> int:
    if op == OP_ACQUIRE:
        return 16
    if op in (ord("T"), ord("B"), ord("R"), ord("N")):
        return 8
    return 0


def parse_reply(frame: bytes) -> Incoming | None:
    if not frame:
        return None
    op = chr(frame[0])
    if op == "A":
        if len(frame) < 17:
            return None
        token = int.from_bytes(frame[1:9], "big")
        owner = int.from_bytes(frame[9:17], "big")
        return Incoming("A", frame[17:].decode(), token, owner)
    if op in "TBRN":
        if len(frame) < 9:
            return None
        return Incoming(op, frame[9:].decode(), 0, int.from_bytes(frame[1:9], "big"))
    if op in "MLE":
        return Incoming(op, frame[1:].decode())
    return None


class FrameParser:
    __slots__ = ("_buf",)

    def __init__(self) -> None:
        self._buf = bytearray()

    def feed(self, chunk: bytes) -> None:
        self._buf += chunk

    def next_line(self) -> bytes | None:
        nl = self._buf.find(_NL)
        if nl < 0:
            if len(self._buf) > _MAX_HANDSHAKE_LINE:
                raise TicketError("protocol", "handshake line too long")
            return None
        line = bytes(self._buf[:nl])
        del self._buf[: nl + 1]
        return line

    def next_frame(self) -> bytes | None:
        # An empty frame is the server's keep-alive, not a reply.
        # 빈 프레임은 응답이 아니라 서버의 keep-alive다.
        while True:
            if not self._buf:
                return None
            if self._buf[0] == _NL:
                del self._buf[:1]
                return b""
            fixed = reply_fixed(self._buf[0])
            nl = self._buf.find(_NL, 1 + fixed)
            if nl < 0:
                return None
            frame = bytes(self._buf[:nl])
            del self._buf[: nl + 1]
            if len(frame) > 1 + fixed + MAX_LINE_LEN:
                continue
            return frame
