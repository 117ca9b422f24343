"""How the screens are laid out and coloured. One sheet: a screen's own would come too late for the first screen."""

from __future__ import annotations

from ticketing.tui.live.toned import TONE_CSS

SHEET = (
    TONE_CSS
    + """
MainScreen { layout: vertical; }
#nodes { height: 4; }
#title { background: $panel; }
#filter { display: none; height: 1; border: none; padding: 0; background: $panel; }
#filter:focus { border: none; }
#small { display: none; height: 1fr; }
KeyScreen { layout: vertical; }
KeyScreen #detail { height: 5; }
KeyScreen #history { height: 5; }
NodeScreen { layout: vertical; }
NodeScreen VerticalScroll { height: 1fr; }
NodeScreen #facts { height: auto; }
HelpScreen { align: center middle; }
HelpScreen VerticalScroll { width: 62; max-width: 100%; height: auto; max-height: 100%; border: round $primary;
    background: $panel; padding: 0 1; }
HelpScreen Lines { height: auto; }
ConfirmScreen { align: center middle; }
ConfirmScreen Vertical { width: 70; max-width: 100%; height: auto; max-height: 100%; border: round $error;
    background: $panel; padding: 0 1; }
ConfirmScreen Lines { height: auto; }
ConfirmScreen Input { height: 1; border: none; padding: 0; margin-top: 1; }
App:ansi Rows .rows--cursor { background: ansi_default; color: ansi_default; text-style: reverse; }
App:ansi Rows .rows--resting { background: ansi_default; text-style: underline; }
App.ascii HelpScreen VerticalScroll, App.ascii ConfirmScreen Vertical { border: ascii $primary; }
App.ascii * { scrollbar-size-vertical: 0; }
App.ascii Toast { border-left: none; border-right: none; }
"""
)
