"""`dispatcher preflight` and the executor on a real kube-apiserver: the answers are its own (R1–R3)."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chaos.testbed import Testbed
from chaos.testbed.kube import Kube
from tests.cluster.helpers import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
REPOSITORY = Path(__file__).parents[2]


async def preflight(kubeconfig: Path, namespace: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The command as people run it."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RIDEOUT_")},
        "RIDEOUT_KUBECONFIG": str(kubeconfig),
        "RIDEOUT_NAMESPACE": namespace,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dispatcher", "preflight", "--json", *arguments),
        cwd=REPOSITORY,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode in (0, 1), said.decode()
    found: dict[str, Any] = json.loads(printed)
    return process.returncode, found


async def pods_in(kube: Kube, namespace: str) -> list[str]:
    reply = await kube.request("GET", f"/api/v1/namespaces/{namespace}/pods")
    return [item["metadata"]["name"] for item in reply.body["items"]]


@asynccontextmanager
async def namespace_of_its_own(admin: Kube, name: str, **labels: str) -> AsyncIterator[str]:
    """A namespace with its default ServiceAccount, and no LimitRange."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    assert (await admin.request("POST", "/api/v1/namespaces", body)).ok
    try:

        async def has_an_account() -> bool:
            return (await admin.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")).ok

        await until(has_an_account, f"the default ServiceAccount of {name}")
        yield name
    finally:
        await admin.request("DELETE", f"/api/v1/namespaces/{name}")


async def test_the_lanes_identity_and_namespace_are_ready_and_nothing_is_created(bed: Testbed, admin: Kube):
    namespace = bed.namespaces["buffered"]
    before = await pods_in(admin, namespace)
    code, found = await preflight(bed.kubeconfig("dispatcher"), namespace)
    assert (code, found["disposition"], found["cause"], found["missing"]) == (0, "Placed", "201 Created", []), found
    assert found["ready"] is True
    assert await pods_in(admin, namespace) == before


async def test_R3_rights_that_are_missing_are_named(bed: Testbed):
    code, found = await preflight(bed.kubeconfig("dispatcher"), "default")
    assert (code, found["disposition"], found["cause"]) == (1, "Rejected", "403 Forbidden"), found
    assert found["next"].startswith("grant `create` on `pods` in default")
    missing = [check["name"] for check in found["checks"] if check["passed"] is False]
    assert "may list pods in default" in missing


async def test_R3_a_namespace_that_is_not_there(bed: Testbed):
    code, found = await preflight(bed.kubeconfig("admin"), "nowhere")
    assert (code, found["disposition"], found["cause"]) == (1, "Rejected", "404 NotFound"), found
    assert "kubectl create namespace nowhere" in found["next"]


async def test_a_namespace_without_a_limit_range_is_accepted_and_warned_of(bed: Testbed, admin: Kube):
    async with namespace_of_its_own(admin, "without-limits") as namespace:
        code, found = await preflight(bed.kubeconfig("admin"), namespace)
    assert (code, found["disposition"]) == (0, "Placed"), found
    assert [line.split(":")[0] for line in found["missing"]] == [f"a LimitRange in {namespace}"]


async def test_a_quota_that_is_used_up_is_backpressure(bed: Testbed, admin: Kube):
    async with namespace_of_its_own(admin, "without-room") as namespace:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none"},
            "spec": {"hard": {"pods": "0"}},
        }
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        assert (await admin.request("POST", path, quota)).ok

        async def counted() -> bool:
            reply = await admin.request("GET", f"{path}/none")
            return bool(reply.body.get("status", {}).get("hard"))

        await until(counted, "the quota's status")
        code, found = await preflight(bed.kubeconfig("admin"), namespace)
    assert (code, found["disposition"], found["cause"]) == (1, "Backpressure", "403 quota"), found


async def test_the_pod_template_meets_restricted_pod_security(bed: Testbed, admin: Kube):
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    async with namespace_of_its_own(admin, "restricted", **label) as namespace:
        code, found = await preflight(bed.kubeconfig("admin"), namespace)
    assert (code, found["disposition"]) == (0, "Placed"), found


async def test_a_spec_that_the_api_refuses_is_rejected_with_its_words(bed: Testbed, tmp_path: Path):
    spec = tmp_path / "spec.json"
    spec.write_text('{"command": ["true"], "resources": {"limits": {"cpu": "-1"}}}')
    code, found = await preflight(bed.kubeconfig("dispatcher"), bed.namespaces["tick"], "--spec", str(spec))
    assert (code, found["disposition"], found["cause"]) == (1, "Rejected", "422 Invalid"), found


async def test_R1_a_webhook_that_cannot_be_called(bed: Testbed):
    bed.proxies.disable("webhook")
    try:
        code, found = await preflight(bed.kubeconfig("dispatcher"), bed.namespaces["buffered"])
    finally:
        bed.proxies.enable("webhook")
    assert (code, found["disposition"], found["cause"]) == (1, "Unavailable", "webhook unreachable"), found
    assert "fail-closed admission webhook" in found["next"]


async def test_R1_an_api_that_refuses_connections(bed: Testbed):
    bed.proxies.disable("api")
    try:
        code, found = await preflight(bed.kubeconfig("dispatcher"), bed.namespaces["buffered"])
    finally:
        bed.proxies.enable("api")
    assert (code, found["disposition"], found["cause"]) == (1, "Unavailable", "connection refused"), found
    assert all(check["passed"] is None for check in found["checks"])
