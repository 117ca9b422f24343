"""The optional compiled build: with TICKETING_COMPILE=1 mypyc compiles the modules that pyproject.toml names.

Everything else about the package is said there. Without the variable this file adds nothing.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from setuptools import Extension, setup


def extensions() -> list[Extension]:
    """One for each module, and the shared code behind them."""
    if os.environ.get("TICKETING_COMPILE") != "1":
        return []
    from mypyc.build import mypycify

    project = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text(encoding="utf-8"))
    return mypycify(project["tool"]["ticketing"]["compiled"], opt_level="2", debug_level="0")


setup(ext_modules=extensions())
