"""`python -m ticketing` is the `ticketing` command."""

from __future__ import annotations

import sys

from ticketing.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
