"""The node as a kubelet: what runs, how it ends, what is never run twice, and how it rides out an outage."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from chaos import jsonl
from chaos.history import History
from chaos.testbed import Testbed, reaper
from chaos.testbed.controlplane.local import NODE_NAME
from chaos.testbed.kube import Kube
from tests.cluster.helpers import Pods, until

pytestmark = pytest.mark.cluster


@pytest.fixture
def pods(bed: Testbed, dispatcher: Kube) -> Pods:
    return Pods(dispatcher, bed.namespaces["tick"])


def exits(bed: Testbed, uid: str) -> list[dict[str, Any]]:
    return [line for line in jsonl.read(bed.directory / "ledger.jsonl") if line["pod_uid"] == uid]


async def uid_of(pods: Pods, name: str) -> str:
    return str((await pods.get(name)).body["metadata"]["uid"])


async def test_a_pod_runs_with_its_environment_and_ends_with_its_code(bed: Testbed, pods: Pods, tmp_path: Path):
    await pods.create("plain", f'echo "$GREETING|$RIDEOUT_LANE|$RIDEOUT_LEDGER" > {tmp_path / "said"}; exit 3')
    assert await pods.reach("plain", "Succeeded", "Failed") == "Failed"
    uid, status = await uid_of(pods, "plain"), (await pods.get("plain")).body["status"]
    assert (tmp_path / "said").read_text() == f"hello {uid}|tick|{bed.directory / 'ledger.jsonl'}\n"
    (container,) = status["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 3
    (line,) = exits(bed, uid)
    assert line.pop("t_mono") > 0
    assert line == {"event": "exit", "lane": "tick", "row": 7, "epoch": 3, "pod_uid": uid, "code": 3}


async def test_what_an_agent_says_is_copied_into_the_history(bed: Testbed, pods: Pods):
    said = json.dumps({"agent": "report", "what": "running", "row": 7, "epoch": 3, "type": "ok", "op": "fault"})
    await pods.create("speaker", f"echo plain words >&2; echo '{said}' >&2; printf 'no newline' >&2")
    await pods.reach("speaker", "Succeeded")
    events = [e for e in History.read(bed.directory / "history.jsonl") if e.get("pod") == "speaker"]
    (event,) = events
    assert (event["type"], event["process"], event["op"]) == ("info", "node", "agent"), "it cannot pose as a fault"
    assert (event["agent"], event["what"], event["lane"], event["row"]) == ("report", "running", "tick", 7)
    log = bed.node.log.read_text()
    assert "tasks-tick/speaker: plain words" in log
    assert "tasks-tick/speaker: no newline" in log


async def test_nothing_outlives_the_first_process(bed: Testbed, pods: Pods, tmp_path: Path):
    """Not even what left its group by setsid(); the end is recorded after all of it is dead."""
    children = tmp_path / "children"
    await pods.create(
        "stray", f"sleep 600 & echo $! >> {children}; setsid sleep 600 & echo $! >> {children}; sleep 0.3"
    )
    await pods.reach("stray", "Succeeded")
    pids = [int(word) for word in children.read_text().split()]
    assert len(pids) == 2
    assert [reaper.start_time(pid) for pid in pids] == [None, None]
    assert len(exits(bed, await uid_of(pods, "stray"))) == 1


async def test_a_killed_first_process_takes_the_rest_along(bed: Testbed, pods: Pods, tmp_path: Path):
    await pods.create(
        "shot", f"echo $$$$ > {tmp_path / 'first'}; setsid sleep 600 & echo $! > {tmp_path / 'rest'}; wait"
    )
    await until((tmp_path / "rest").exists, "the pod's processes")
    rest = int(await until(lambda: (tmp_path / "rest").read_text(), "the pid"))
    os.kill(int((tmp_path / "first").read_text()), signal.SIGKILL)
    assert await pods.reach("shot", "Failed", "Succeeded") == "Failed"
    assert reaper.start_time(rest) is None
    assert exits(bed, await uid_of(pods, "shot"))[0]["code"] == 137


@pytest.mark.parametrize(("name", "trap", "code"), [("polite", "trap 'exit 5' TERM", 5), ("deaf", "trap '' TERM", 137)])
async def test_deletion_asks_then_insists(bed: Testbed, pods: Pods, tmp_path: Path, name: str, trap: str, code: int):
    await pods.create(name, f"{trap}; echo up > {tmp_path / 'up'}; while :; do sleep 0.05; done")
    await until((tmp_path / "up").exists, "the pod to run")
    uid = await uid_of(pods, name)
    await pods.delete(name, grace_s=1)
    await pods.reach(name, "404")
    assert exits(bed, uid)[0]["code"] == code


async def test_an_ended_pod_can_be_deleted(pods: Pods):
    await pods.create("ended", "true")
    await pods.reach("ended", "Succeeded")
    await pods.delete("ended")
    await pods.reach("ended", "404")


async def test_a_pod_is_not_active_longer_than_it_may(bed: Testbed, pods: Pods):
    await pods.create("long", "sleep 600", activeDeadlineSeconds=1)
    await pods.reach("long", "Failed")
    status = (await pods.get("long")).body["status"]
    assert status["reason"] == "DeadlineExceeded"


async def test_a_pod_the_node_cannot_make_says_why(pods: Pods):
    body = {"name": "task", "image": "none", "command": ["/nowhere/agent"]}
    await pods.create("impossible", "", containers=[body])

    async def reason() -> str:
        statuses = (await pods.get("impossible")).body["status"].get("containerStatuses") or [{}]
        return str(statuses[0].get("state", {}).get("waiting", {}).get("message", ""))

    assert await until(reason, "its reason") == "cannot run /nowhere/agent: No such file or directory"
    await pods.delete("impossible")
    await pods.reach("impossible", "404")


async def test_a_killed_node_never_starts_a_uid_twice(bed: Testbed, pods: Pods, tmp_path: Path):
    """What runs goes on and is adopted; what ended meanwhile is reported; nothing is started again."""
    starts = tmp_path / "starts"
    for name, seconds in (("survivor", 600), ("brief", 1)):
        await pods.create(name, f"echo {name} $$$$ >> {starts}; sleep {seconds}")
    await until(lambda: starts.exists() and len(starts.read_text().splitlines()) == 2, "both to run")
    pids = {line.split()[0]: int(line.split()[1]) for line in starts.read_text().splitlines()}
    os.kill(bed.node.pid or 0, signal.SIGKILL)  # the process alone: a kubelet's pods outlive it
    await bed.node.wait_exit(5)
    await until(lambda: reaper.start_time(pids["brief"]) is None, "the brief one to end while the node is away")
    bed.node.start()
    await bed.node.wait_ready(30)
    assert await pods.reach("brief", "Failed", "Succeeded") == "Failed"
    assert (await pods.get("brief")).body["status"]["reason"] == "NodeRestarted", "nobody saw its exit code"
    assert await pods.phase("survivor") == "Running"
    assert reaper.start_time(pids["survivor"]) is not None
    uid = await uid_of(pods, "survivor")
    await pods.delete("survivor", grace_s=1)
    await pods.reach("survivor", "404")
    assert len(exits(bed, uid)) == 1
    assert len(starts.read_text().splitlines()) == 2, "each was started once"


async def test_pods_run_on_through_a_stop_of_the_whole_control_plane(
    bed: Testbed, pods: Pods, admin: Kube, tmp_path: Path
):
    """Ended within the outage: reported after it. Running through it: not started again. New ones: run at once."""
    starts = tmp_path / "starts"
    for name, rest in (("within", "sleep 2; exit 4"), ("through", "sleep 600")):
        await pods.create(name, f"echo {name} >> {starts}; {rest}")
        await pods.reach(name, "Running")
    uid = await uid_of(pods, "within")
    order = [bed.apiserver, bed.controller_manager, bed.scheduler, bed.etcd]
    for process in order:
        await process.terminate(20)
    await until(lambda: exits(bed, uid), "the one to end while the API is away")
    for process in [bed.etcd, bed.apiserver, bed.controller_manager, bed.scheduler]:
        process.start()
        await process.wait_ready(60)
    await bed.wait_api_ready(30)
    assert await pods.reach("within", "Failed", "Succeeded", deadline_s=10) == "Failed"
    assert await pods.phase("through") == "Running"
    assert sorted(starts.read_text().split()) == ["through", "within"], "each was started once"
    await pods.create("after", "true")
    await pods.reach("after", "Succeeded")
    await until(lambda: node_is_sound(admin), "the node to be Ready without taints")
    await pods.delete("through", grace_s=0)
    await pods.reach("through", "404")


async def node_is_sound(admin: Kube) -> bool:
    reply = await admin.request("GET", f"/api/v1/nodes/{NODE_NAME}")
    lease = await admin.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE_NAME}")
    ready = {c["type"]: c["status"] for c in reply.body["status"]["conditions"]}["Ready"] == "True"
    return ready and not reply.body["spec"].get("taints") and lease.ok
