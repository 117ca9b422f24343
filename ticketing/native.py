"""What the optional compiled build (docs/performance.md) needs of the sources, and whether it is what runs."""

from __future__ import annotations

from importlib.machinery import SOURCE_SUFFIXES
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_attributes):
        """Tells the compiler something about a class; to Python it says nothing."""
        return lambda cls: cls


__all__ = ["is_compiled", "mypyc_attr"]


def is_compiled() -> bool:
    """Whether this process runs the compiled modules: all of them come from one build, so one tells."""
    spec = find_spec("ticketing.protocol.frames")
    assert spec is not None
    assert spec.origin is not None
    return not spec.origin.endswith(tuple(SOURCE_SUFFIXES))
