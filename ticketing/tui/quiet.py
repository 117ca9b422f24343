"""A logger that says nothing: a line on standard error would land in the middle of the picture."""

from __future__ import annotations

import logging

QUIET = logging.getLogger("ticketing.tui")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
