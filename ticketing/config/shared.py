"""The part of the configuration that all places must share, and its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from ticketing.node.settings import Place

_FORMAT = 1


def cluster_digest(places: Sequence[Place], *, delta_ms: int, first_token: int) -> str:
    """SHA-256, in hex, over what two nodes must agree on before they form a domain together.

    Timing, limits, secrets and listening addresses are not in it: they may be changed one node at a time.
    """
    shared = [_FORMAT, [list(place) for place in places], delta_ms, first_token]
    return hashlib.sha256(json.dumps(shared, separators=(",", ":")).encode()).hexdigest()
