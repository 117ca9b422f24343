"""The nodes of a cluster's folder on hosts of their own: each reloads its own files, which may be other than these."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from tests.cli.planes import TOKEN, Asked, Planes, Reply, error, facts
from ticketing.config.cluster_folder import plan_cluster, write_cluster
from ticketing.config.load import load_node
from ticketing.server.loaded import Loaded, loaded_certificates, loaded_secrets

PLACES = ("node-1", "node-2", "node-3")


class Hosts:
    """What `init` wrote, in `folder`; and what lies on the hosts, which has to be copied there.

    A host that shares its files with the folder (`shared`) is the machine where the commands are typed.
    """

    def __init__(self, planes: Planes, folder: Path, *, tls: bool = False, shared: bool = False) -> None:
        self.planes = planes
        self.folder = folder
        self._copies = folder if shared else folder.with_name("hosts")
        self.loaded: dict[str, Loaded] = {}
        self.refused: set[str] = set()
        """Places whose reload fails."""
        self.silent: set[str] = set()
        """Places of a former version, which do not say what they have loaded."""
        write_cluster(plan_cluster(nodes=3, tls=tls, now_ms=1), folder)
        for file in [folder / "admin.toml", *(folder / place / "node.toml" for place in PLACES)]:
            text = file.read_text()
            for number, place in enumerate(PLACES):
                text = text.replace(f'"127.0.0.1:{7225 + number}"', f'"{planes.address(place)}"')
            text = re.sub(r'^(token|admin_token) = ".*"$', rf'\1 = "{TOKEN}"', text, flags=re.MULTILINE)
            file.write_text(text)
        for place in PLACES:
            self.copy(place)
            self.reload(place)
            planes.on("POST", "/v1/reload", self._reload)
            planes.on("GET", "/v1/status", self._status, place)

    def copy(self, place: str) -> None:
        """The operator's `scp`."""
        if self._copies != self.folder:
            shutil.copytree(self.folder / place, self._copies / place, dirs_exist_ok=True)

    def reload(self, place: str) -> Loaded:
        settings = load_node(self._copies / place).settings
        self.loaded[place] = loaded_secrets(settings) | loaded_certificates(settings.tls)
        return self.loaded[place]

    def _reload(self, asked: Asked) -> Reply:
        if asked.place in self.refused:
            return error(409, "no_reload", "node.toml: line 3: nonsense")
        loaded = self.reload(asked.place)
        return {"reloaded": True} | ({} if asked.place in self.silent else {"loaded": loaded})

    def _status(self, asked: Asked) -> Reply:
        own = facts(int(asked.place[-1]))
        process: dict[str, Any] = {**own["process"]}
        if asked.place not in self.silent:
            process["loaded"] = self.loaded[asked.place]
        return own | {"process": process}
