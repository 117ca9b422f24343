"""What hands do and eyes see, on a scripted cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.color import Color
from textual.strip import Strip
from textual.widgets import Input

from tests.tui.fake_cluster import FIRST_TOKEN, FakeCluster, Lock, crowd
from tests.tui.watching import watch
from ticketing.tui.live.app import TopApp
from ticketing.tui.live.detail_screens import KeyScreen, NodeScreen
from ticketing.tui.live.dialogs import ConfirmScreen, HelpScreen
from ticketing.tui.live.main_screen import MainScreen
from ticketing.tui.live.rows import Rows
from ticketing.tui.model import LockRow
from ticketing.tui.render.text import LEFT_TO_RIGHT_MARK


def some_locks(cluster: FakeCluster) -> None:
    cluster.hold(crowd("seat/A-12", FIRST_TOKEN + 30, 5))
    cluster.hold(*(Lock(f"stock/{n}", FIRST_TOKEN + n, lease_left_ms=30_000 - 100 * n) for n in range(30)))


def cursor_key(app: TopApp) -> str | None:
    row = app.screen.query_one("#locks", Rows).row
    return row.key if isinstance(row, LockRow) else None


# --- what is seen


async def test_health_nodes_locks_and_events_are_seen_at_once() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster) as watched:
            await watched.until_shown("seat/A-12")
            for text in (
                "leader node-1 term 4",
                "1 may fail (3/3 answer)",
                "clocks open",
                "31 held",
                "5 waiting",
            ):
                assert watched.shows(text)
            assert watched.shows("node-1 leads in term 4")


async def test_a_leader_killed_while_it_runs_is_told_and_the_next_one_followed() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster) as watched:
            await watched.until_shown("seat/A-12")
            await cluster.kill("node-1")
            await watched.until_shown("NO LEADER")
            assert watched.shows("node-1 leads no more; no leader serves")
            assert watched.shows("connection refused")
            assert watched.shows("seat/A-12"), "the last list stays in sight"
            cluster.elect("node-3")
            await watched.until_shown("leader node-3 term 5")
            cluster.hold(crowd("seat/B-1", FIRST_TOKEN + 99, 9))
            await watched.until_shown("seat/B-1")


async def test_a_replaced_node_is_told_by_its_new_number() -> None:
    async with FakeCluster() as cluster, watch(cluster) as watched:
        await cluster.kill("node-2")
        await watched.until_shown("node-2 does not answer")
        cluster.changes = [
            {
                "place": "node-2",
                "state": "catching_up",
                "why": "",
                "learner": {"snapshot_percent": 43, "lag": 7},
            }
        ]
        await watched.until_shown("node-2 is being replaced: catching_up, snapshot 43%")
        cluster.nodes["node-2"].node_id = 4
        await cluster.nodes["node-2"].start()
        cluster.changes = []
        await watched.until_shown("node-2 was replaced: NodeId 2 became 4")
        await watched.until(lambda: not watched.shows("is being replaced"))
        # It listens on another port now: the leader said so.
        assert cluster.nodes["node-2"].asked


async def test_a_growing_queue_rises_to_the_top() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster) as watched:
            await watched.until(lambda: cursor_key(watched.app) == "seat/A-12")
            cluster.hold(crowd("stock/7", FIRST_TOKEN + 7, 50))
            await watched.until(lambda: cursor_key(watched.app) == "stock/7")
            await watched.until_shown("55 waiting for 2 keys")


async def test_a_node_that_hangs_holds_up_nothing() -> None:
    async with FakeCluster() as cluster, watch(cluster, patience_s=0.05) as watched:
        cluster.nodes["node-3"].deaf.clear()
        await watched.until_shown("no answer for")
        readings = watched.app.board.reading
        await watched.until(lambda: watched.app.board.reading is not readings)
        assert cluster.nodes["node-3"].busy_max == 1, "it is not asked again while a question is out"
        cluster.nodes["node-3"].deaf.set()
        await watched.until_shown("node-3 answers again")


async def test_what_nodes_tell_of_themselves_is_in_the_log() -> None:
    async with FakeCluster() as cluster, watch(cluster) as watched:
        leader = cluster.nodes["node-1"]
        await watched.until(lambda: leader.readers == 1, refresh=False)
        leader.happened.put_nowait(
            {"kind": "gate", "what": "step", "step_ms": -412, "time_ms": 1_796_051_045_000}
        )
        await watched.until(lambda: watched.shows("node-1: its wall clock was set by -412 ms"), refresh=False)


async def test_an_event_is_followed_by_a_refresh_without_being_asked() -> None:
    async with FakeCluster() as cluster, watch(cluster) as watched:
        leader = cluster.nodes["node-1"]
        await watched.until(lambda: leader.readers == 1, refresh=False)
        cluster.elect("node-2")
        leader.happened.put_nowait({"kind": "leader", "term": "5", "leader": None})
        await watched.until(lambda: watched.shows("leader node-2 term 5"), refresh=False)
        leader.happened.put_nowait({"kind": "gap", "lost": 3})
        await watched.until(lambda: cluster.nodes["node-2"].readers == 1, refresh=False)
        assert cluster.nodes["node-3"].readers == 0


async def test_a_wrong_token_is_told() -> None:
    async with FakeCluster() as cluster:
        cluster.token = "another"
        async with watch(cluster) as watched:
            await watched.until_shown("the admin token is missing or wrong")


async def test_old_data_is_said_to_be_old() -> None:
    async with FakeCluster() as cluster, watch(cluster) as watched:
        await watched.until_shown("leader node-1")
        for place in cluster.nodes:
            await cluster.kill(place)
        await watched.until_shown("NO LEADER")
        then = watched.app._clock_ns
        watched.app._clock_ns = lambda: then() + 200_000_000_000
        watched.app._tick()
        await watched.until(lambda: watched.shows("data 3m20s old"), refresh=False)


# --- text of users


ODD_KEYS = {
    "[0]": "[0]",
    "[red]x": "[red]x",
    "[@click=app.quit]x[/]": "[@click=app.quit]x[/]",
    "a[b]c\\": "a[b]c\\\\",
    "좌석/가": "좌석/가",
    "e\u0301": "e\u0301",
    "\u202ekcolb": "\\u202ekcolb",
    "a\x1b[2Jb": "a\\x1b[2Jb",
    "שלום": "\u200eשלום\u200e",  # noqa: RUF001
}


async def test_any_text_is_shown_literally_everywhere() -> None:
    async with FakeCluster() as cluster:
        for n, key in enumerate(ODD_KEYS):
            lock = crowd(key, FIRST_TOKEN, 20 - n)
            lock.name = lock.waiters[0].name = key
            cluster.hold(lock)
        async with watch(cluster, admin=True) as watched:
            await watched.until_shown("[0]")
            for shown in ODD_KEYS.values():
                assert watched.shows(shown)
            for n, shown in list(enumerate(ODD_KEYS.values()))[-3:]:
                await watched.until(lambda place=n: _go_to(watched.app, place))  # type: ignore[misc]
                await watched.press("c")
                assert any(shown.strip(LEFT_TO_RIGHT_MARK) in note for note in watched.notes())
                await watched.press("X")
                assert watched.shows(f"key    {shown}")
                await watched.press("escape", "enter")
                await watched.until_shown(f"queue   {20 - n} waiting")
                assert watched.shows(f"key     {shown}")
                await watched.press("escape")


def _go_to(app: TopApp, place: int) -> bool:
    rows = app.screen.query_one("#locks", Rows)
    rows._go(place)
    return rows.cursor == place


# --- keys


async def test_the_cursor_stays_with_its_key_once_it_was_moved() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster) as watched:
            await watched.until_shown("seat/A-12")
            await watched.press("down", "j", "down")
            chosen = cursor_key(watched.app)
            assert chosen == "stock/2"
            cluster.hold(*(crowd(f"new/{n}", FIRST_TOKEN + 100 + n, 9) for n in range(60)))
            await watched.until_shown("waiting for 61 keys")
            assert cursor_key(watched.app) == chosen
            assert watched.shows(chosen), "it is still in sight"
            await watched.press("home")
            assert cursor_key(watched.app) == "new/0"


async def test_the_cursor_moves_by_rows_and_pages_and_to_the_ends() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster, size=(80, 24)) as watched:
            await watched.until_shown("seat/A-12")
            rows = watched.app.screen.query_one("#locks", Rows)
            for key, place in (("G", 30), ("up", 29), ("k", 28), ("g", 0), ("end", 30), ("home", 0)):
                await watched.press(key)
                assert rows.cursor == place
            await watched.press("pagedown")
            first = rows.cursor
            assert 5 < first < 15
            assert watched.shows(f"stock/{first - 1}")
            await watched.press("pageup")
            assert rows.cursor == 0


@pytest.mark.parametrize(
    ("key", "order", "first", "arrow"),
    [
        ("W", "queue", "seat/A-12", "WAIT▼"),
        ("A", "age", "stock/0", "HELD▼"),
        ("L", "lease_left", "seat/A-12", "LEFT▲"),
        ("K", "key", "seat/A-12", "KEY▲"),
    ],
)
async def test_each_sort_key_lists_by_its_order_with_an_arrow(
    key: str, order: str, first: str, arrow: str
) -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster) as watched:
            await watched.until_shown("seat/A-12")
            await watched.press("down", key)
            await watched.until(lambda: cursor_key(watched.app) == first)
            assert watched.app.want.order == order
            assert watched.shows(arrow)


async def test_s_goes_through_the_orders() -> None:
    async with FakeCluster() as cluster, watch(cluster) as watched:
        orders = []
        for _ in range(4):
            await watched.press("s")
            orders.append(watched.app.want.order)
        assert orders == ["age", "lease_left", "key", "queue"]


async def test_the_filter_opens_applies_shows_in_the_title_and_clears() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster) as watched:
            await watched.until_shown("seat/A-12")
            await watched.press("slash")
            await watched.write("stock/2")
            assert watched.app.screen.query_one("#filter", Input).value == "stock/2"
            await watched.press("enter")
            await watched.until(lambda: cursor_key(watched.app) == "stock/2")
            assert watched.shows("filter: stock/2*")
            assert not watched.shows("seat/A-12")
            await watched.press("escape")
            await watched.until_shown("seat/A-12")
            assert not watched.shows("filter:")


async def test_what_is_typed_in_one_go_behind_the_slash_is_the_filter() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster) as watched:
            await watched.until_shown("seat/A-12")
            watched.send(*"/stock/2", "enter")
            await watched.until(lambda: cursor_key(watched.app) == "stock/2")


async def test_escape_leaves_the_filter_as_it_was() -> None:
    async with FakeCluster() as cluster, watch(cluster) as watched:
        await watched.press("slash")
        await watched.write("qs?")
        await watched.press("escape")
        assert watched.app.want.prefix == ""
        assert isinstance(watched.app.focused, Rows)


async def test_enter_opens_a_key_with_its_queue_in_order_and_escape_goes_back() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster) as watched:
            await watched.until_shown("seat/A-12")
            await watched.press("enter")
            await watched.until_shown("5 waiting")
            assert watched.on(KeyScreen)
            assert watched.shows("10.0.0.7:51544")
            assert [row.place for row in watched.app.screen.query_one("#waiters", Rows).rows] == [
                1,
                2,
                3,
                4,
                5,
            ]
            cluster.locks["seat/A-12"].token += 500
            cluster.locks["seat/A-12"].waiters.pop(0)
            await watched.until_shown(f"token {FIRST_TOKEN + 530}")
            await watched.press("escape")
            assert watched.on(MainScreen)
            assert watched.app.want.key is None


async def test_the_queue_of_a_key_shows_what_was_seen_of_it() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster) as watched:
            await watched.until_shown("seat/A-12")
            await watched.press("enter")
            await watched.until_shown(f"held by shop/web-1/417, token {FIRST_TOKEN + 30}")
            cluster.locks["seat/A-12"].renewal = 1
            await watched.until_shown(f"extended, token {FIRST_TOKEN + 30}")
            del cluster.locks["seat/A-12"]
            await watched.until_shown("held by nobody")
            assert watched.shows("holder  nobody")


async def test_a_thousand_waiters_are_listed_to_the_end() -> None:
    async with FakeCluster() as cluster:
        cluster.hold(crowd("seat/A-12", FIRST_TOKEN, 1_000))
        async with watch(cluster) as watched:
            await watched.until_shown("seat/A-12")
            await watched.press("enter")
            await watched.until_shown("1,000 waiting, the first")
            waiters = watched.app.screen.query_one("#waiters", Rows)
            for listed in (200, 400, 800, 1_000):
                await watched.press("end")
                await watched.until(lambda listed=listed: len(waiters.rows) >= listed)  # type: ignore[misc]
            assert not watched.shows("the first")


async def test_tab_and_enter_open_a_node_in_full() -> None:
    async with FakeCluster() as cluster, watch(cluster) as watched:
        await watched.press("tab", "down", "enter")
        await watched.until(lambda: watched.on(NodeScreen))
        await watched.until_shown("certificate   ends in 300 days")
        assert watched.shows("NodeId        2")
        await watched.press("escape")
        assert watched.on(MainScreen)


async def test_the_help_is_made_of_the_bindings_that_work_here() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster, size=(100, 50)) as watched:
            await watched.until_shown("seat/A-12")
            await watched.press("question_mark")
            assert watched.on(HelpScreen)
            assert watched.shows("Show the keys that begin with a text")
            assert not watched.shows("Revoke")
            await watched.press("escape", "enter")
            await watched.until(lambda: watched.on(KeyScreen))
            await watched.press("question_mark")
            assert watched.shows("Back to all locks")
            assert not watched.shows("Sort by key")
            await watched.press("q")
            assert watched.on(KeyScreen), "q closes the help alone"


async def test_pause_stops_asking_until_it_goes_on_and_r_asks_once() -> None:
    async with FakeCluster() as cluster, watch(cluster) as watched:
        await watched.until_shown("leader node-1")
        await watched.press("p")
        assert watched.shows("PAUSED")
        cluster.elect("node-2")
        seen = watched.app.board.reading
        await watched.press("r")
        await watched.until(lambda: watched.app.board.reading is not seen, refresh=False)
        await watched.until(lambda: watched.shows("leader node-2"), refresh=False)
        assert watched.app.paused
        await watched.press("space")
        assert not watched.shows("PAUSED")


async def test_the_interval_stays_within_its_range() -> None:
    async with FakeCluster() as cluster, watch(cluster) as watched:
        assert watched.app.interval_s == 60
        await watched.press("plus")
        assert watched.app.interval_s == 60
        for _ in range(12):
            await watched.press("minus")
        assert watched.app.interval_s == 0.25
        assert watched.shows("every 0.25s")
        await watched.press("equals_sign")
        assert watched.app.interval_s == 0.5


async def test_copies_the_key_and_the_token_exactly() -> None:
    async with FakeCluster() as cluster:
        cluster.hold(Lock("a\u202eb", FIRST_TOKEN + 1))
        async with watch(cluster) as watched:
            await watched.until_shown("a\\u202eb")
            await watched.press("c")
            assert watched.app.clipboard == "a\u202eb"
            await watched.press("t")
            assert watched.app.clipboard == str(FIRST_TOKEN + 1)


def pictures_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_saves_the_screen_and_says_where(tmp_path: Path) -> None:
    async with FakeCluster() as cluster, watch(cluster, pictures=tmp_path) as watched:
        await watched.until_shown("leader node-1")
        await watched.press("S")
        (picture,) = pictures_in(tmp_path)
        assert picture.read_text().startswith("<svg")
        assert any(str(picture) in note for note in watched.notes())


async def test_a_picture_that_cannot_be_saved_is_told(tmp_path: Path) -> None:
    async with FakeCluster() as cluster, watch(cluster, pictures=tmp_path / "nowhere") as watched:
        await watched.press("S")
        assert any("no such file" in note for note in watched.notes())


async def test_pages_follow_each_other_by_key() -> None:
    async with FakeCluster() as cluster:
        cluster.hold_many(300)
        async with watch(cluster, size=(80, 24)) as watched:
            await watched.press("right_square_bracket")
            assert any("press K" in note for note in watched.notes())
            await watched.press("K")
            await watched.until(lambda: cursor_key(watched.app) == "event/000000")
            await watched.until(lambda: watched.app.board.reading.locks.next)  # type: ignore[union-attr]
            await watched.press("right_square_bracket")
            await watched.until(lambda: (cursor_key(watched.app) or "") > "event/000040")
            assert watched.shows("after event/0000")
            await watched.press("left_square_bracket")
            await watched.until(lambda: cursor_key(watched.app) == "event/000000")


async def test_themes_go_round() -> None:
    async with FakeCluster() as cluster, watch(cluster) as watched:
        seen = [watched.app.theme]
        for _ in range(7):
            await watched.press("m")
            seen.append(watched.app.theme)
        assert len(set(seen)) == 7
        assert seen[0] == seen[7]


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_quits(key: str) -> None:
    async with FakeCluster() as cluster, watch(cluster) as watched:
        await watched.press(key)
        await watched.settle()
        assert not watched.app.is_running or watched.app._exit


async def test_ctrl_c_quits_from_the_filter_too() -> None:
    async with FakeCluster() as cluster, watch(cluster) as watched:
        await watched.press("slash", "a", "ctrl+c")
        await watched.settle()
        assert watched.app._exit


# --- sizes


async def test_any_size_is_survived_and_the_full_view_comes_back() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster, size=(80, 24)) as watched:
            await watched.until_shown("seat/A-12")
            for size in ((1, 1), (5, 2), (20, 5), (40, 10), (39, 30), (200, 9), (400, 100), (1, 50)):
                await watched.pilot.resize_terminal(*size)
                fits = size[0] >= 40 and size[1] >= 10
                assert watched.shows("seat/A-12") is fits
            await watched.pilot.resize_terminal(39, 30)
            assert watched.shows("terminal too small (need 40x10)")
            await watched.pilot.resize_terminal(80, 24)
            await watched.until_shown("seat/A-12")
            assert watched.shows("node-3")


def filtered(app: TopApp, strip: Strip) -> Strip:
    for colours in app._filters:
        if colours.enabled:
            strip = strip.apply_filter(colours, Color(0, 0, 0))
    return strip


async def test_no_colour_leaves_the_terminal_its_own_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with FakeCluster() as cluster:
        some_locks(cluster)
        await cluster.kill("node-3")
        async with watch(cluster, no_color=True) as watched:
            await watched.until_shown("connection refused")
            colours = {
                (segment.style.color, segment.style.bgcolor)
                for strip in watched.app.screen._compositor.render_strips()
                for segment in filtered(watched.app, strip)
                if segment.style is not None
            }
            names = {colour.name for pair in colours for colour in pair if colour is not None}
            assert names == {"default"}


# --- commands


async def test_without_admin_no_dangerous_key_is_bound() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster) as watched:
            await watched.until_shown("seat/A-12")
            bound = watched.app.screen.active_bindings
            assert not {"X", "T", "R", "upper_x", "upper_t", "upper_r"} & set(bound)
            await watched.press("X", "T", "R", "y")
            assert watched.on(MainScreen)
            assert cluster.commands == []


async def test_a_revocation_needs_a_reason_and_names_the_exact_grant() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster, admin=True) as watched:
            await watched.until_shown("seat/A-12")
            await watched.press("X")
            assert watched.on(ConfirmScreen)
            assert watched.shows("The holder is not told")
            await watched.press("enter")
            assert watched.on(ConfirmScreen), "no reason, nothing done"
            await watched.write("stuck job")
            await watched.press("enter")
            await watched.until(lambda: cluster.commands)
            ((name, key, body),) = cluster.commands
            assert (name, key) == ("revoke", "seat/A-12")
            assert body["token"] == str(FIRST_TOKEN + 30)
            assert body["reason"] == "stuck job"
            assert body["id"]
            await watched.until(lambda: "revoked" in watched.notes())
            await watched.until(lambda: not watched.shows("seat/A-12"))


async def test_a_key_is_revoked_from_its_own_page_too() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster, admin=True) as watched:
            await watched.until_shown("seat/A-12")
            await watched.press("enter")
            await watched.until_shown("5 waiting")
            await watched.press("X")
            cluster.locks["seat/A-12"].token += 1
            await watched.write("late")
            await watched.press("enter")
            await watched.until(lambda: any("not held by that token" in note for note in watched.notes()))


async def test_escape_changes_nothing() -> None:
    async with FakeCluster() as cluster:
        some_locks(cluster)
        async with watch(cluster, admin=True) as watched:
            await watched.until_shown("seat/A-12")
            for key in ("X", "T"):
                await watched.press(key)
                assert watched.on(ConfirmScreen)
                await watched.press("escape")
            assert cluster.commands == []


async def test_the_lead_is_transferred_to_the_chosen_node() -> None:
    async with FakeCluster() as cluster, watch(cluster, admin=True) as watched:
        await watched.press("tab", "down", "T")
        assert watched.shows("Transfer the lead to node-2?")
        await watched.press("enter")
        assert cluster.commands == [], "enter is pressed too easily"
        await watched.press("y")
        await watched.until(lambda: cluster.commands)
        assert cluster.commands[0][2]["to"] == "node-2"


async def test_a_refused_command_says_why() -> None:
    async with FakeCluster() as cluster:
        cluster.refuses = "node-2 is not fit"
        async with watch(cluster, admin=True) as watched:
            await watched.press("T", "y")
            await watched.until(lambda: any("node-2 is not fit" in note for note in watched.notes()))


async def test_a_replacement_is_started_for_the_chosen_node() -> None:
    async with FakeCluster() as cluster, watch(cluster, admin=True) as watched:
        await watched.press("R")
        assert any("choose a node first" in note for note in watched.notes())
        await watched.press("tab", "down", "down", "R", "y")
        await watched.until(lambda: cluster.commands)
        assert cluster.commands[0][:2] == ("replace", "node-3")


async def test_without_a_leader_a_command_is_not_sent() -> None:
    async with FakeCluster() as cluster, watch(cluster, admin=True) as watched:
        cluster.leader = None
        await watched.until_shown("NO LEADER")
        await watched.press("T", "y")
        await watched.until(lambda: any("no leader serves" in note for note in watched.notes()))
