"""Refuses to work beside the published package, whose import name is that of our alias.

Installed together, one's files lie among the other's: which client a program gets is chance, and uninstalling
either breaks both.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

ALIAS = "saro_ticketing"
_PUBLISHED_FILE = "broker.py"
"""Which the alias does not have."""


def refuse_published() -> None:
    """ImportError where `saro_ticketing` is the published package, or what is left of it lies in our alias."""
    try:
        spec = find_spec(ALIAS)
    except ValueError:
        return  # a stand-in without a spec, as tests make them
    places = spec.submodule_search_locations if spec is not None else None
    for place in places or ():
        if Path(place, _PUBLISHED_FILE).exists():
            raise ImportError(
                f"the published package 'ticketing' is installed as well ({place}): both have the import name "
                f"'{ALIAS}'. Keep one: pip uninstall ticketing && pip install --force-reinstall --no-deps "
                "ticketing-server",
                name=ALIAS,
                path=place,
            )
