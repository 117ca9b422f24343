from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticketing.tui.render.text import ASCII, UNICODE, Cell, Glyphs, fit, fit_line, plain, safe, width_of

KEYS = st.text(st.characters(codec="utf-8"), max_size=40)
GLYPHS = st.sampled_from((UNICODE, ASCII))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("stock/42", "stock/42"),
        ("[red]x[/]", "[red]x[/]"),
        ("a\\b", "a\\\\b"),
        ("a\nb\tc\x1b[2J", "a\\x0ab\\x09c\\x1b[2J"),
        ("\u202ekcolb", "\\u202ekcolb"),
        ("a\u200bb", "a\\u200bb"),
        ("\u0301x", "\\u0301x"),
        ("e\u0301", "e\u0301"),
        ("좌석", "좌석"),
        ("שלום", "\u200eשלום\u200e"),  # noqa: RUF001
        ("", ""),
    ],
)
def test_what_moves_turns_or_hides_is_escaped_and_all_else_is_shown(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_ascii_shows_everything_in_ascii() -> None:
    assert safe("좌/é", ascii_only=True) == "\\uc88c/\\xe9"


@pytest.mark.parametrize(
    ("text", "width", "fitted"),
    [
        ("abc", 5, "abc  "),
        ("abc", 3, "abc"),
        ("abcdef", 4, "abc…"),
        ("abcdef", 1, "…"),
        ("abcdef", 0, ""),
        ("좌석", 4, "좌석"),
        ("좌석표", 5, "좌석…"),
        ("좌석표", 4, "좌… "),
        ("e\u0301a\u0301o\u0301", 2, "e\u0301…"),
    ],
)
def test_text_is_cut_and_padded_by_cells(text: str, width: int, fitted: str) -> None:
    assert fit(text, width, UNICODE) == fitted


def test_numbers_stand_at_the_right() -> None:
    assert fit("42", 5, UNICODE, right=True) == "   42"


def test_a_key_is_cut_in_its_middle_so_that_its_end_is_seen() -> None:
    assert fit("event/2026/seat/A-12", 12, UNICODE, middle=True) == "event/…/A-12"
    assert fit("event/2026/seat/A-12", 12, ASCII, middle=True) == "event/~/A-12"


@settings(max_examples=150)
@given(KEYS, st.integers(0, 30), GLYPHS, st.booleans(), st.booleans())
def test_whatever_the_text_is_it_takes_exactly_the_width(
    text: str, width: int, glyphs: Glyphs, right: bool, middle: bool
) -> None:
    shown = safe(text, ascii_only=glyphs.ascii)
    assert width_of(fit(shown, width, glyphs, right=right, middle=middle)) == width
    assert shown.isprintable() or "\u200e" in shown


@settings(max_examples=60)
@given(st.lists(KEYS, max_size=5), st.integers(0, 40), GLYPHS)
def test_a_line_takes_exactly_the_width(texts: list[str], width: int, glyphs: Glyphs) -> None:
    line = [Cell(safe(text, ascii_only=glyphs.ascii)) for text in texts]
    assert sum(width_of(cell.text) for cell in fit_line(line, width, glyphs)) == width


def test_a_plain_line_ends_where_its_text_ends() -> None:
    assert plain([Cell("a "), Cell("b"), Cell("   ")]) == "a b"
