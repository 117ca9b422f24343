"""The same screens with the keys that change something. Bound only with `--admin`."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from ticketing.tui.live.detail_screens import KeyScreen, NodeScreen
from ticketing.tui.live.main_screen import MainScreen

_REVOKE = Binding("X", "revoke", "Revoke", id="admin.revoke", tooltip="End this grant (asks first)")
_TRANSFER = Binding(
    "T",
    "transfer",
    "Transfer",
    id="admin.transfer",
    tooltip="Give the lead to this node, or to whoever is fit (asks first)",
)
_REPLACE = Binding(
    "R", "replace", "Replace", id="admin.replace", tooltip="Start the replacement of this node (asks first)"
)


class AdminMainScreen(MainScreen):
    """All locks and nodes, and commands."""

    BINDINGS: ClassVar[list[BindingType]] = [_REVOKE, _TRANSFER, _REPLACE]

    def action_revoke(self) -> None:
        """Ends the grant that the cursor stands on."""
        if self.grant is not None and self.grant.token:
            self.top.revoke(self.grant)

    def action_transfer(self) -> None:
        """To the node that the cursor stands on, where the nodes have the focus; else to whoever is fit."""
        node = self.node_view if self.query_one("#nodes").has_focus else None
        self.top.transfer(node.place if node is not None else None)

    def action_replace(self) -> None:
        """Of the node that the cursor stands on."""
        if self.query_one("#nodes").has_focus and self.node_view is not None:
            self.top.replace(self.node_view.place)
        else:
            self.top.say("choose a node first: press tab")


class AdminKeyScreen(KeyScreen):
    """One key, and its revocation."""

    BINDINGS: ClassVar[list[BindingType]] = [_REVOKE]

    def action_revoke(self) -> None:
        """Ends the grant that holds this key."""
        if self.grant is not None:
            self.top.revoke(self.grant)


class AdminNodeScreen(NodeScreen):
    """One node, and commands."""

    BINDINGS: ClassVar[list[BindingType]] = [_TRANSFER, _REPLACE]

    def action_transfer(self) -> None:
        """To this node."""
        self.top.transfer(self.place)

    def action_replace(self) -> None:
        """Of this node."""
        self.top.replace(self.place)
