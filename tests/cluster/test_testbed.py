"""The testbed as others use it: identities, proxies, the webhook, the audit log, databases, and two at once."""

import asyncio
import json
import os
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest

from chaos.errors import ChaosError
from chaos.testbed import Testbed, reaper
from chaos.testbed.certs import Authority
from chaos.testbed.kube import Kube, write_kubeconfig
from tests.cluster.helpers import LANES, Pods, pod, until

pytestmark = pytest.mark.cluster


def test_every_process_has_a_group_and_a_pid_file(bed: Testbed):
    names = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
    names |= {"postgres", "toxiproxy", "webhook", "node"}
    running = {name: process for name, process in bed.supervisor.processes.items() if process.alive}
    assert names <= set(running)
    for process in running.values():
        assert process.pid is not None
        assert os.getpgid(process.pid) == process.pid
        assert reaper.read_pid_file(bed.directory / "pids" / f"{process.name}.pid") == process.pid


async def test_servers_say_the_pinned_version(bed: Testbed, admin: Kube):
    assert (await admin.request("GET", "/version")).body["gitVersion"] == bed.kubernetes_version == "v1.37.2"


# -- identities ----------------------------------------------------------------------------------------------------


async def allowed(kube: Kube, verb: str, resource: str, namespace: str, group: str = "") -> bool:
    """What the authorizer says of this identity (SelfSubjectAccessReview)."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace, "group": group}},
    }
    reply = await kube.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(reply.body["status"]["allowed"])


MAY = {
    "dispatcher": {("pods", verb) for verb in ("create", "get", "list", "watch", "delete")} | {("limitranges", "list")},
    "probe": {
        (resource, verb)
        for resource in ("pods", "configmaps")
        for verb in ("create", "get", "list", "watch", "delete", "deletecollection")
    },
}


@pytest.mark.parametrize("identity", ["dispatcher", "probe"])
async def test_R26_an_identity_may_do_what_it_needs_and_nothing_else(bed: Testbed, identity: str):
    resources = (
        "pods",
        "pods/exec",
        "pods/status",
        "configmaps",
        "secrets",
        "limitranges",
        "serviceaccounts",
        "events",
    )
    verbs = ("create", "get", "list", "watch", "update", "patch", "delete", "deletecollection")
    async with Kube.open(bed.kubeconfig(identity)) as kube:
        for namespace in bed.namespaces.values():
            may = {(r, v) for r in resources for v in verbs if await allowed(kube, v, r, namespace)}
            assert may == MAY[identity]
        for namespace in ("default", "kube-system", "rideout", ""):
            assert not {(r, v) for r in resources for v in ("create", "list") if await allowed(kube, v, r, namespace)}
        assert not await allowed(kube, "create", "leases", "kube-system", "coordination.k8s.io")


async def test_identities_are_known_by_name_only(bed: Testbed):
    with pytest.raises(ChaosError, match="no identity 'root': there are dispatcher, probe, admin, node"):
        bed.kubeconfig("root")


async def test_a_kubeconfig_stays_as_it_was_written(bed: Testbed):
    """R26: a dispatcher reads its credentials anew when the file changes."""
    before = bed.kubeconfig("dispatcher").stat()
    assert bed.kubeconfig("dispatcher").stat() == before


async def test_a_proxied_client_verifies_the_apiserver(bed: Testbed, tmp_path: Path):
    stranger = Authority(tmp_path / "pki")
    pair = bed.control_plane.clients["dispatcher"]
    config = write_kubeconfig(tmp_path / "k", bed.api_url, stranger.pair.certificate, pair.certificate, pair.key)
    async with Kube.open(config) as kube:
        with pytest.raises(aiohttp.ClientConnectorCertificateError) as failure:
            await kube.request("GET", "/version")
    assert isinstance(failure.value.certificate_error, ssl.SSLCertVerificationError)
    assert bed.api_url != bed.api_url_direct
    assert json.loads(bed.kubeconfig("dispatcher").read_text())["clusters"][0]["cluster"]["server"] == bed.api_url


# -- audit log -----------------------------------------------------------------------------------------------------


async def test_the_audit_log_holds_a_committed_create_by_the_time_it_is_answered(bed: Testbed, dispatcher: Kube):
    """Else a kill of the apiserver would lose the record of a create that somebody was told of."""
    path = f"/api/v1/namespaces/{bed.namespaces['tick']}/pods"
    records: list[dict[str, Any]] = []
    with bed.audit_log.open() as log:
        log.seek(0, os.SEEK_END)
        for number in range(100):
            body = pod(f"audited-{number}", ["true"], schedulingGates=[{"name": "rideout.dev/test"}])
            assert (await dispatcher.request("POST", path, body)).status == 201
            records += [json.loads(line) for line in log.read().splitlines()]
            assert f"audited-{number}" in {record["objectRef"].get("name") for record in records}
    ours = [record for record in records if record["userAgent"] == "rideout-dispatcher/test"]
    assert {(r["stage"], r["level"], r["responseStatus"]["code"]) for r in ours} == {
        ("ResponseComplete", "Request", 201)
    }
    assert {r["objectRef"]["namespace"] for r in ours} == {"tasks-tick"}
    assert ours[0]["requestObject"]["metadata"]["labels"]["rideout.dev/epoch"] == "3"
    for number in range(100):
        await dispatcher.request("DELETE", f"{path}/audited-{number}")


async def test_the_audit_log_holds_creates_and_deletes_of_pods_only(bed: Testbed):
    records = [json.loads(line) for line in bed.audit_log.read_text().splitlines()]
    assert records
    assert {(r["verb"], r["objectRef"]["resource"]) for r in records} <= {
        ("create", "pods"),
        ("delete", "pods"),
        ("deletecollection", "pods"),
    }


# -- the webhook ---------------------------------------------------------------------------------------------------


async def tried(kube: Kube, bed: Testbed, **labels: str) -> Any:
    body = pod("webhook-try", ["true"])
    body["metadata"]["labels"] |= labels
    path = f"/api/v1/namespaces/{bed.namespaces['tick']}/pods"
    return await kube.request("POST", path, body, query={"dryRun": "All"}, deadline_s=15)


async def test_the_webhook_denies_a_labelled_share(bed: Testbed, dispatcher: Kube):
    try:
        await bed.webhook_mode({"mode": "deny", "label": "share=bad", "code": 403, "reason": "Forbidden"})
        denied, admitted = await tried(dispatcher, bed, share="bad"), await tried(dispatcher, bed)
    finally:
        await bed.webhook_mode({"mode": "admit"})
    assert denied.status == 403
    assert denied.body["message"].startswith('admission webhook "gate.rideout.dev" denied the request')
    assert admitted.status == 201


async def test_the_webhook_fails_closed_and_typed(bed: Testbed, dispatcher: Kube):
    """Unreachable: 500 InternalError, the cause in details, as `errors.py` reads it."""
    await asyncio.to_thread(bed.proxies.disable, "webhook")
    try:
        reply = await tried(dispatcher, bed)
    finally:
        await asyncio.to_thread(bed.proxies.enable, "webhook")
    assert (reply.status, reply.body["reason"]) == (500, "InternalError")
    assert "failed calling webhook" in reply.body["details"]["causes"][0]["message"]
    assert (await tried(dispatcher, bed)).status == 201


async def test_the_webhook_comes_back_in_its_mode(bed: Testbed, dispatcher: Kube):
    try:
        await bed.webhook_mode({"mode": "garbage"})
        bed.webhook.kill()
        await bed.webhook.wait_exit(5)
        bed.webhook.start()
        await bed.webhook.wait_ready(20)
        reply = await until(lambda: tried(dispatcher, bed), "an answer")
        assert reply.status == 500
    finally:
        await bed.webhook_mode({"mode": "admit"})
    assert (await tried(dispatcher, bed)).status == 201


async def test_no_mode_is_refused_by_name(bed: Testbed):
    with pytest.raises(ChaosError, match="the webhook refused the mode: a mode is an object whose `mode` is one of"):
        await bed.webhook_mode({"mode": "explode"})


async def test_creates_through_proxy_and_webhook_are_not_held_up(bed: Testbed, dispatcher: Kube):
    """A recovery re-offers hundreds of rows a second; the testbed must not be what they wait for."""
    slots, path = asyncio.Semaphore(64), f"/api/v1/namespaces/{bed.namespaces['buffered']}/pods"
    gated = {"schedulingGates": [{"name": "rideout.dev/test"}]}

    async def one(number: int) -> int:
        async with slots:
            return (await dispatcher.request("POST", path, pod(f"rate-{number}", ["true"], **gated))).status

    began = time.monotonic()
    codes = await asyncio.gather(*(one(number) for number in range(400)))
    took = time.monotonic() - began
    assert set(codes) == {201}
    assert took < 20, f"{400 / took:.0f} creates a second"  # measured 370/s on 2 idle cores
    async with Kube.open(bed.kubeconfig("probe")) as probe:
        await probe.request("DELETE", path, {}, deadline_s=30)


# -- Toxiproxy -----------------------------------------------------------------------------------------------------


async def test_a_proxy_that_is_off_refuses_and_comes_back(bed: Testbed, dispatcher: Kube):
    await asyncio.to_thread(bed.proxies.disable, "api")
    try:
        with pytest.raises(aiohttp.ClientConnectorError) as refused:
            await dispatcher.request("GET", "/version")
        assert isinstance(refused.value.os_error, ConnectionRefusedError)
        assert not bed.proxies.enabled("api")
    finally:
        await asyncio.to_thread(bed.proxies.enable, "api")
    assert (await dispatcher.request("GET", "/version")).ok
    await bed.wait_api_ready(10)


async def test_a_toxiproxy_that_hangs_is_noticed_and_replaced(bed: Testbed, dispatcher: Kube):
    await asyncio.to_thread(bed.proxies.add, "api", "slow", "latency", "downstream", {"latency": 100})
    assert [toxic["name"] for toxic in bed.proxies.toxics("api")] == ["slow"]
    bed.proxies.deadline_s, before = 0.5, bed.proxies.deadline_s
    bed.toxiproxy_process.pause()
    try:
        with pytest.raises(ChaosError, match="restart it"):
            await asyncio.to_thread(bed.proxies.remove, "api", "slow")
    finally:
        bed.proxies.deadline_s = before
        await bed.proxies.restart()
    assert bed.proxies.toxics("api") == []
    await bed.wait_api_ready(10)
    assert (await tried(dispatcher, bed)).status == 201


# -- databases -----------------------------------------------------------------------------------------------------


def test_a_database_a_lane_behind_a_password(bed: Testbed):
    for lane in LANES:
        assert bed.database_url(lane).startswith("postgresql+psycopg://rideout:")
        with psycopg.connect(bed.database_url(lane, driver="postgresql")) as connection:
            row = connection.execute("SELECT current_database(), count(*) FROM pg_tables WHERE schemaname = 'public'")
            assert row.fetchone() == (f"rideout_{lane}", 0)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host="127.0.0.1", port=bed.database.port, user="rideout", password="", dbname="postgres")


async def test_postgresql_runs_unprivileged_and_survives_a_kill(bed: Testbed):
    assert bed.postgres.pid is not None
    assert Path(f"/proc/{bed.postgres.pid}").stat().st_uid != 0
    url = bed.database_url("tick", driver="postgresql")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (1)")
    bed.postgres.kill()
    await bed.postgres.wait_exit(5)
    bed.postgres.start()
    await bed.postgres.wait_ready(60)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchall() == [(1,)]
        connection.execute("DROP TABLE kept")


# -- two at once ---------------------------------------------------------------------------------------------------


async def test_two_testbeds_at_once_do_not_collide(bed: Testbed, dispatcher: Kube, tmp_path: Path):
    async with Testbed.start(tmp_path, ["tick"]) as other:
        assert not set(bed.ports._claims) & set(other.ports._claims)
        async with Kube.open(other.kubeconfig("dispatcher")) as theirs:
            pods = Pods(theirs, other.namespaces["tick"])
            assert (await pods.create("there", "true")).status == 201
            await pods.reach("there", "Succeeded")
            ours = Pods(dispatcher, bed.namespaces["tick"])
            assert await ours.phase("there") == "404", "another cluster"
        state = other.supervisor.state
    assert not state.exists()
    leftovers = subprocess.run(["pgrep", "-f", str(state)], capture_output=True, text=True, check=False).stdout
    assert leftovers == ""
    assert (await tried(dispatcher, bed)).status == 201, "the first is untouched"
