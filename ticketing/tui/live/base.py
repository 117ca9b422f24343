"""What all screens of the dashboard share."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.screen import Screen

from ticketing.tui.board import Board
from ticketing.tui.render.text import Glyphs

if TYPE_CHECKING:
    from ticketing.tui.live.app import TopApp


class TopScreen(Screen[None]):
    """A screen that draws the board."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs

    @property
    def top(self) -> TopApp:
        """The application."""
        return cast("TopApp", self.app)

    @property
    def board(self) -> Board:
        """What is known."""
        return self.top.board

    def show(self) -> None:
        """Draws what the board has."""

    def show_age(self) -> None:
        """Draws what grows older by itself."""
        self.show()
