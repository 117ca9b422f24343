"""Facts as the cells of a table: short, in one unit a column, a hyphen for what is not known."""

from __future__ import annotations

from ticketing.cli.output import shown


def cell(value: object) -> str:
    """Anything."""
    return "-" if value is None else str(value)


def text(value: object) -> str:
    """What somebody else has named: what could move the cursor is escaped, and it stays one word's place."""
    return shown(str(value)) if value not in (None, "") else "-"


def seconds(milliseconds: object) -> str:
    """A duration."""
    if not isinstance(milliseconds, int | float):
        return "-"
    value = milliseconds / 1000
    if value >= 3600:
        return f"{value / 3600:.1f} h"
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def difference(milliseconds: object, error: object) -> str:
    """A measured difference, and by how much the measurement may be off."""
    if not isinstance(milliseconds, int | float):
        return "-"
    if not isinstance(error, int | float):
        return f"{milliseconds:+.1f} ms"
    return f"{milliseconds:+.1f} ms ± {error:.1f}"


def percent(share: object) -> str:
    """A share of one."""
    return f"{share * 100:.0f} %" if isinstance(share, int | float) else "-"
