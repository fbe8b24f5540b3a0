"""A testbed that is handed over to the next run is as if it had just been started: nothing of the last one is left."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from chaos.errors import ChaosError
from chaos.history import History
from chaos.testbed import Testbed, manifests
from chaos.testbed.bed import Options
from chaos.testbed.handover import hand_over
from chaos.testbed.kube import Kube
from chaos.testbed.toxics import Proxy
from tests.cluster.helpers import Pods

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
async def bed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Testbed]:
    async with Testbed.start(tmp_path_factory.mktemp("first"), lanes=("buffered", "tick", "control")) as started:
        yield started


def options(run: Path, **more: object) -> Options:
    logs = run / "logs"
    logs.mkdir(parents=True)
    own = {"history": run / "history.jsonl", "ledger": run / "ledger.jsonl", "started_mono": time.monotonic()}
    return Options(**{**own, **more})  # type: ignore[arg-type]


async def leave_traces(bed: Testbed) -> None:
    """What a run leaves: a pod that runs, rows, a mode of the webhook, a toxic, a proxy of its own that is off."""
    async with Kube.open(bed.kubeconfig("dispatcher")) as kube:
        pods = Pods(kube, bed.namespaces["tick"])
        assert (await pods.create("left-behind", "sleep 600")).status == 201
        await pods.reach("left-behind", "Running")
    with psycopg.connect(bed.database_url("tick", driver="postgresql")) as connection:
        connection.execute("CREATE TABLE left_behind (id int)")
    await bed.webhook_mode({"mode": "deny", "label": "a=b", "code": 403})
    await asyncio.to_thread(bed.proxies.add, "api", "left-behind", "latency", "downstream", {"latency": 10})
    own = Proxy("own", f"127.0.0.1:{bed.ports.take()}", f"127.0.0.1:{bed.database.port}")
    await asyncio.to_thread(bed.proxies.join, own)
    await asyncio.to_thread(bed.proxies.disable, "own")


async def test_nothing_is_left_of_the_run_before(bed: Testbed, tmp_path: Path):
    await leave_traces(bed)
    server_pid, audited = bed.apiserver.pid, bed.audit_log.stat().st_size
    assert audited > 0
    await hand_over(bed, ("tick",), options(tmp_path, webhook_timeout_s=3, in_process=True), tmp_path / "logs")

    assert bed.apiserver.pid == server_pid, "the servers go on"
    assert list(bed.namespaces) == ["tick"]
    async with Kube.open(bed.kubeconfig("admin")) as admin:
        assert (await admin.request("GET", "/api/v1/namespaces/tasks-tick/pods")).body["items"] == []
        path = manifests.path_of(manifests.documents("testbed/webhook.yaml")[0])
        assert (await admin.request("GET", path)).body["webhooks"][0]["timeoutSeconds"] == 3
    with psycopg.connect(bed.database_url("tick", driver="postgresql")) as connection:
        found = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert found == (0,)
    assert (await bed.webhook_mode())["mode"] == "admit"
    assert bed.proxies.toxics("api") == []
    assert set(bed.proxies.proxies) == {"api", "webhook"}
    assert bed.audit_from >= audited, "what is on record already belongs to the run before"


async def test_the_node_writes_into_the_next_runs_records(bed: Testbed, tmp_path: Path):
    await hand_over(bed, ("buffered", "tick"), options(tmp_path), tmp_path / "logs")
    assert bed.node.log == tmp_path / "logs" / "node.log"
    async with Kube.open(bed.kubeconfig("dispatcher")) as kube:
        pods = Pods(kube, bed.namespaces["buffered"])
        said = json.dumps({"agent": "user-start", "row": 1, "epoch": 1, "pod_uid": "", "nonce": ""}).replace('"', '\\"')
        assert (await pods.create("next", f'echo "{said}" >&2')).status == 201
        await pods.reach("next", "Succeeded")
        await pods.delete("next", grace_s=0)
    (event,) = [one for one in History.read(tmp_path / "history.jsonl") if one["op"] == "agent"]
    assert event["agent"] == "user-start"
    assert event["t"] < 120, "on the next run's clock"
    (end,) = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert (end["event"], end["code"]) == ("exit", 0)


async def test_a_testbed_whose_servers_are_gone_is_not_handed_over(bed: Testbed, tmp_path: Path):
    bed.scheduler.kill()
    await bed.scheduler.wait_exit(5)
    try:
        with pytest.raises(ChaosError, match="kube-scheduler no longer runs"):
            await hand_over(bed, ("tick",), options(tmp_path), tmp_path / "logs")
    finally:
        bed.scheduler.start()
        await bed.scheduler.wait_ready(60)
