"""What the files in `state/` are called; `ticketing.server.files` says what stands in each."""

from __future__ import annotations

PERMIT = "permit.json"
RECORD = "record.json"
FLOOR = "floor.json"
REPLACE = "replace.json"
