"""`deploy/kubernetes.yaml`: what Kubernetes' own schema says of it, and the rules that a node needs (spec 9)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ticketing.config.cluster_folder import plan_cluster, write_cluster
from ticketing.node.settings import NodeSettings, S
from ticketing.node.state_files import FLOOR, PERMIT, RECORD

yaml: Any = pytest.importorskip("yaml", reason="of the extra `test`: install it anew")
MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes.yaml"
VERSIONS = ("1.29", "1.37")
"""`ordinals` is a beta from 1.27 on; the newest that the schemas here have."""
PLACES = ("node-1", "node-2", "node-3")


def documents() -> dict[str, Any]:
    return {found["kind"]: found for found in yaml.safe_load_all(MANIFEST.read_text())}


FOUND = documents()
SET = FOUND["StatefulSet"]["spec"]
POD = SET["template"]["spec"]
(NODE,) = POD["containers"]
(FILES,) = POD["initContainers"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", sorted(FOUND))
def test_the_schema_of_kubernetes_has_nothing_against_it(kind: str, version: str) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="of the extra `test`: install it anew")
    schemas.validate(FOUND[kind], version, strict=True)


def test_a_pod_is_told_to_stop_with_time_to_ask_for_leave_and_one_at_a_time() -> None:
    stop_wait_s = NodeSettings(place="a", places=()).stop_wait_ns / S
    assert POD["terminationGracePeriodSeconds"] >= 2 * stop_wait_s
    assert FOUND["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert SET["updateStrategy"]["type"] == "RollingUpdate"
    assert SET["minReadySeconds"] >= 10, "a new member needs a moment to take its place"


def test_all_pods_start_at_once_and_find_each_other_before_they_are_ready() -> None:
    assert SET["podManagementPolicy"] == "Parallel"
    assert FOUND["Service"]["spec"]["publishNotReadyAddresses"] is True
    assert FOUND["Service"]["spec"]["clusterIP"] == "None"


def test_pods_have_the_names_of_places_and_a_machine_each() -> None:
    name, first = FOUND["StatefulSet"]["metadata"]["name"], SET["ordinals"]["start"]
    assert tuple(f"{name}-{first + n}" for n in range(SET["replicas"])) == PLACES
    (rule,) = POD["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    selector = SET["selector"]["matchLabels"]
    assert rule["labelSelector"]["matchLabels"] == selector
    assert FOUND["Service"]["spec"]["selector"] == selector == SET["template"]["metadata"]["labels"]
    assert FOUND["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == selector


def test_liveness_asks_whether_the_loop_turns_and_nothing_else_and_readiness_who_serves() -> None:
    live, ready = NODE["livenessProbe"], NODE["readinessProbe"]
    assert live["httpGet"]["path"] == "/livez"
    assert live["periodSeconds"] * live["failureThreshold"] >= 30, "a busy machine is not a dead process"
    assert ready["httpGet"]["path"] == "/readyz"
    ports = {port["name"]: port["containerPort"] for port in NODE["ports"]}
    assert ports == {"client": 5225, "peer": 6225, "admin": 7225}
    assert {port["name"]: port["port"] for port in FOUND["Service"]["spec"]["ports"]} == ports
    assert live["httpGet"]["port"] == ready["httpGet"]["port"] == "admin"


def test_the_processor_is_not_limited_and_state_outlives_the_pod() -> None:
    assert "cpu" not in NODE["resources"]["limits"], "a throttled loop misses heartbeats"
    (claim,) = SET["volumeClaimTemplates"]
    mounted = {mount["mountPath"]: mount["name"] for mount in NODE["volumeMounts"]}
    assert mounted["/node"] == claim["metadata"]["name"]


def secrets_of(folder: Path) -> None:
    """What the volume of secrets holds, made of a cluster's folder as the file's own comment says."""
    cluster = plan_cluster(nodes=3, hosts=("a.example", "b.example", "c.example"), now_ms=1)
    write_cluster(cluster, folder / "cluster")
    (volume,) = POD["volumes"]
    for source in volume["projected"]["sources"]:
        name = source["secret"]["name"]
        place = name.removeprefix("ticketing-")
        home = folder / "cluster" / place
        made = {"node.toml": home, **dict.fromkeys(("ca.pem", "node.pem", "node.key"), home / "tls")}
        made["permit.json"] = home / "state"
        assert f"secret generic ticketing-{place[:-1]}$n" in MANIFEST.read_text().replace("\\\n#", "")
        for item in source["secret"]["items"]:
            target = folder / "secrets" / item["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((made[item["key"]] / item["key"]).read_bytes())


@pytest.mark.parametrize("earlier", [None, RECORD, FLOOR])
@pytest.mark.parametrize("place", PLACES)
def test_a_pod_gets_its_own_files_and_a_permit_only_in_its_first_life(
    tmp_path: Path, place: str, earlier: str | None
) -> None:
    secrets_of(tmp_path)
    node = tmp_path / "node"
    if earlier is not None:
        (node / "state").mkdir(parents=True)
        (node / "state" / earlier).write_text("{}")
        (node / "state" / earlier).chmod(0o600)
    (script,) = FILES["args"]
    script = re.sub(r"/(secrets|node)(?=/)", rf"{tmp_path}/\1", script)
    subprocess.run([*FILES["command"], script], env={"POD": place, "PATH": "/usr/bin:/bin"}, check=True)
    assert f'place = "{place}"' in (node / "node.toml").read_text()
    assert sorted(path.name for path in (node / "tls").iterdir()) == ["ca.pem", "node.key", "node.pem"]
    assert (node / "state" / PERMIT).exists() is (earlier is None)
    assert all(path.stat().st_mode & 0o077 == 0 for path in node.rglob("*") if path.is_file())
    start = NODE["command"]
    assert start == ["ticketing", "node", "start", "--config", "/node/node.toml"]
