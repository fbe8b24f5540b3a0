"""The node's parts: what it reads from a pod, what it remembers, how it watches, how it plays an agent."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from chaos import jsonl
from chaos.testbed.kube import Kube, Reply
from chaos.testbed.node import manifest, podwatch, status
from chaos.testbed.node.manifest import BadPod
from chaos.testbed.node.memory import Memory
from chaos.testbed.node.status import Report, Reporter
from chaos.testbed.node.virtual import VirtualAgent, suits


def pod(env: list[dict[str, Any]] | None = None, **container: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "namespace": "tasks-tick",
            "uid": "u-1",
            "labels": {"rideout.dev/row": "7", "rideout.dev/epoch": "3"},
        },
        "spec": {"containers": [{"name": "task", "command": ["sh"], "env": env or [], **container}]},
    }


async def until(holds: Callable[[], bool], what: str, deadline_s: float = 10) -> None:
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end, f"waited {deadline_s} s for {what}"
        await asyncio.sleep(0.01)


# -- manifest ------------------------------------------------------------------------------------------------------


def test_environment_as_a_kubelet_makes_it():
    read = manifest.read(
        pod(
            [
                {"name": "A", "value": "1"},
                {"name": "B", "value": "$(A)-$(NONE)-$$(A)"},
                {"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                {"name": "ROW", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['rideout.dev/row']"}}},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "EMPTY"},
            ],
            args=["-c", "echo $(A) $A"],
        ),
        "n",
    )
    assert read.env == {"A": "1", "B": "1-$(NONE)-$(A)", "UID": "u-1", "ROW": "7", "NODE": "n", "EMPTY": ""}
    assert read.argv == ["sh", "-c", "echo 1 $A"]
    assert read.identity() == {"lane": "tick", "row": 7, "epoch": 3, "pod_uid": "u-1"}


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (pod(command=[]), "no command"),
        (pod([{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]), "S: only value and fieldRef"),
        (pod([{"name": "S", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}}]), "fieldRef status.phase"),
        (pod(envFrom=[{"configMapRef": {"name": "c"}}]), "envFrom"),
    ],
)
def test_what_the_node_cannot_provide_is_said(made: dict[str, Any], told: str):
    with pytest.raises(BadPod, match=told):
        manifest.read(made, "n")


@pytest.mark.parametrize(("deletion", "spec", "grace"), [(0, 30, 0), (5, 30, 5), (None, 7, 7), (None, None, 30)])
def test_grace_period(deletion: int | None, spec: int | None, grace: float):
    made = pod()
    if deletion is not None:
        made["metadata"]["deletionGracePeriodSeconds"] = deletion
    if spec is not None:
        made["spec"]["terminationGracePeriodSeconds"] = spec
    assert manifest.grace_of(made) == grace


# -- memory --------------------------------------------------------------------------------------------------------


def test_a_uid_is_started_once_in_the_nodes_life_and_in_the_next(tmp_path: Path):
    memory = Memory(tmp_path)
    assert memory.claim("a")
    assert not memory.claim("a")
    memory.started("a", 42, 99)
    again = Memory(tmp_path)
    assert not again.claim("a")
    assert (again.known["a"].pid, again.known["a"].start, again.known["a"].ended) == (42, 99, False)
    again.ended("a", 3)
    assert Memory(tmp_path).known["a"].code == 3


def test_a_torn_memory_is_mended(tmp_path: Path):
    Memory(tmp_path).claim("a")
    with (tmp_path / "uids.jsonl").open("ab") as file:
        file.write(b'{"uid": "b')
    memory = Memory(tmp_path)
    assert memory.claim("c")
    assert set(Memory(tmp_path).known) == {"a", "c"}


# -- reports -------------------------------------------------------------------------------------------------------


class FakeKube:
    """Answers as told, in order, and then with 200; keeps what was asked."""

    def __init__(self, *answers: Reply | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, Any]] = []
        self.watched: list[dict[str, str]] = []
        self.events: list[list[dict[str, Any]]] = []

    async def request(self, method: str, path: str, body: Any = None, **_: Any) -> Reply:
        self.asked.append((method, path, body))
        answer = self.answers.pop(0) if self.answers else Reply(200, {})
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch(self, path: str, query: dict[str, str], **_: Any) -> AsyncIterator[dict[str, Any]]:
        self.watched.append(query)
        for event in self.events.pop(0) if self.events else []:
            yield event


async def delivered(kube: FakeKube, *reports: Report, requests: int) -> None:
    reporter = Reporter(cast(Kube, kube), lambda _: None)
    for report in reports:
        reporter.put(report)
    task = asyncio.create_task(reporter.run())
    await until(lambda: len(kube.asked) >= requests, f"{requests} requests")
    await asyncio.sleep(0.05)  # time for one too many
    task.cancel()
    assert len(kube.asked) == requests


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "RETRY_S", 0.01)
    monkeypatch.setattr(podwatch, "RETRY_S", 0.01)


@pytest.mark.parametrize("trouble", [aiohttp.ServerDisconnectedError(), TimeoutError(), Reply(403, {}), Reply(500, {})])
async def test_a_status_is_sent_until_the_api_takes_it(impatient: None, trouble: Reply | Exception):
    kube = FakeKube(trouble, trouble)
    await delivered(kube, Report("ns", "p", "u", {"phase": "Running"}), requests=3)
    assert {path for _, path, _ in kube.asked} == {"/api/v1/namespaces/ns/pods/p/status"}
    assert kube.asked[0][2] == {"metadata": {"uid": "u"}, "status": {"phase": "Running"}}


async def test_only_the_newest_status_is_sent(impatient: None):
    kube = FakeKube()
    await delivered(
        kube, Report("ns", "p", "u", {"phase": "Running"}), Report("ns", "p", "u", {"phase": "Failed"}), requests=1
    )
    assert kube.asked[0][2]["status"] == {"phase": "Failed"}


async def test_an_ended_pod_that_is_being_deleted_is_removed_with_grace_0_under_its_uid(impatient: None):
    kube = FakeKube()
    await delivered(kube, Report("ns", "p", "u", {"phase": "Failed"}, remove=True), requests=2)
    assert kube.asked[1] == (
        "DELETE",
        "/api/v1/namespaces/ns/pods/p",
        {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}},
    )


async def test_a_conflict_is_asked_about_before_it_counts_as_gone(impatient: None):
    """409 says "another uid" and "somebody wrote at the same time" alike."""
    same, other = Reply(200, {"metadata": {"uid": "u"}}), Reply(200, {"metadata": {"uid": "v"}})
    kube = FakeKube(Reply(409, {}), same, Reply(409, {}), other)
    await delivered(kube, Report("ns", "p", "u", {"phase": "Failed"}), requests=4)


async def test_a_status_that_is_refused_for_what_it_is_is_not_repeated(impatient: None):
    await delivered(FakeKube(Reply(422, {})), Report("ns", "p", "u", {"phase": "Nonsense"}), requests=1)


# -- watch ---------------------------------------------------------------------------------------------------------


def listed(version: str, *names: str, more: str | None = None) -> Reply:
    meta = {"resourceVersion": version, **({"continue": more} if more else {})}
    return Reply(200, {"metadata": meta, "items": [{"metadata": {"name": name}} for name in names]})


async def first(kube: FakeKube, number: int) -> list[tuple[str, list[str]]]:
    seen: list[tuple[str, list[str]]] = []
    async with asyncio.timeout(10):
        async for item in podwatch.observe(cast(Kube, kube), "n", lambda _: None):
            seen.append((item.kind, [found["metadata"]["name"] for found in item.pods]))
            if len(seen) == number:
                break
    return seen


def event(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": name}}}


async def test_lists_then_watches_from_there_and_lists_again_after_410(impatient: None):
    kube = FakeKube(listed("10", "a"), listed("20", "a", "b"))
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
    kube.events = [[event("ADDED", "b"), event("BOOKMARK", ""), event("DELETED", "a"), gone, event("ADDED", "never")]]
    assert await first(kube, 4) == [("list", ["a"]), ("change", ["b"]), ("gone", ["a"]), ("list", ["a", "b"])]
    assert kube.watched[0]["resourceVersion"] == "10"
    assert kube.watched[0]["fieldSelector"] == "spec.nodeName=n"


async def test_a_list_is_whole_or_nothing(impatient: None):
    """A page that fails throws the pages before it away; pods that it would have held must not seem deleted."""
    kube = FakeKube(
        listed("1", "a", more="next"), Reply(500, {}), aiohttp.ServerDisconnectedError(), listed("2", "a", "b")
    )
    assert await first(kube, 1) == [("list", ["a", "b"])]


# -- the agent that is no process ----------------------------------------------------------------------------------

AGENT = ["python3", "-I", "/opt/rideout/agent.py", "--", "python3", "/x/chaos/traffic/work.py"]


@pytest.mark.parametrize(
    ("argv", "played"),
    [
        (AGENT, True),
        (["python3", "-I", "agent.py", "--", "python3", "-m", "chaos.traffic.work"], True),
        (["python3", "-I", "agent.py", "--", "sh", "-c", "true"], False),
        (["python3", "/x/chaos/traffic/work.py"], False),
        (["sh", "--", "python3", "/x/chaos/traffic/work.py"], False),
    ],
)
def test_only_the_agent_around_the_suites_own_code_is_played(argv: list[str], played: bool):
    assert suits(manifest.PodSpec("u", "p", "ns", "task", argv, {})) is played


Answering = Callable[[str, dict[str, Any]], Awaitable[web.Response]]


class Played:
    """A VirtualAgent against a dispatcher that answers as `answer` says."""

    def __init__(self, tmp_path: Path, session: aiohttp.ClientSession, urls: str, **env: str) -> None:
        self.ledger_path = tmp_path / "ledger.jsonl"
        self.ledger = jsonl.open_append(self.ledger_path)
        self.events: list[dict[str, Any]] = []
        variables = {
            "RIDEOUT_ROW": "7",
            "RIDEOUT_EPOCH": "3",
            "RIDEOUT_TRY": "1",
            "RIDEOUT_TOKEN": "secret",
            "RIDEOUT_DISPATCHERS": urls,
            "RIDEOUT_LEDGER": str(self.ledger_path),
            "RIDEOUT_LANE": "tick",
            "RIDEOUT_WORK_S": "0.01",
            **env,
        }
        spec = manifest.PodSpec("u-1", "p", "tasks-tick", "task", AGENT, variables)
        self.agent = VirtualAgent(spec, session, self.ledger, {}, self.events.append)

    async def run(self) -> int:
        await self.agent.start()
        async with asyncio.timeout(20):
            return await self.agent.wait()

    def said(self, *names: str) -> list[tuple[str, str | None]]:
        return [(e["agent"], e.get("what")) for e in self.events if not names or e["agent"] in names]

    def signed(self) -> list[str]:
        return [line["event"] for line in jsonl.read(self.ledger_path)]


@pytest.fixture
async def dispatcher() -> AsyncIterator[SimpleNamespace]:
    """Two addresses: nothing listens on one, the other answers `state.answers[what]` in turn, the last for ever."""
    state = SimpleNamespace(asked=[], answers={})

    async def answer(request: web.Request) -> web.Response:
        what, body = request.match_info["what"], await request.json()
        state.asked.append((what, request.headers.get("Authorization"), body))
        answers = state.answers.get(what) or [
            (200, {"decision": {"running": "run"}.get(what, "recorded"), "lease_s": 90})
        ]
        code, said = answers.pop(0) if len(answers) > 1 else answers[0]
        kind = "application/problem+json" if code == 409 else "application/json"
        return web.Response(status=code, text=json.dumps(said) if said is not None else "<html>", content_type=kind)

    app = web.Application()
    app.router.add_post("/v1/attempts/7/{what}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    state.urls = f"http://127.0.0.1:1, http://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as state.session:
        yield state
    await runner.cleanup()


REFUSED = (409, {"should_terminate": True, "reason": "stale epoch"})


async def test_R11_a_virtual_agent_runs_only_after_it_was_told_to(dispatcher: SimpleNamespace, tmp_path: Path):
    played = Played(tmp_path, dispatcher.session, dispatcher.urls)
    assert await played.run() == 0
    assert played.said() == [
        ("report", "running"),
        ("retry", "running"),  # the address where nothing listens
        ("accepted", "running"),
        ("user-start", None),
        ("user-end", None),
        ("report", "finished"),
        ("accepted", "finished"),
    ]
    assert played.signed() == ["start", "end"]
    (_, bearer, running), (_, _, finished) = dispatcher.asked
    assert bearer == "Bearer secret"
    assert finished == running | {"outcome": "success", "exit_code": 0, "reschedule_after_s": None}
    assert running["epoch"] == 3
    (line, _) = jsonl.read(played.ledger_path)
    assert (line["row"], line["epoch"], line["pod_uid"], line["nonce"]) == (7, 3, "u-1", running["nonce"])


async def test_R11_a_refused_virtual_agent_exits_0_without_user_code(dispatcher: SimpleNamespace, tmp_path: Path):
    dispatcher.answers["running"] = [REFUSED]
    played = Played(tmp_path, dispatcher.session, dispatcher.urls)
    assert await played.run() == 0
    assert played.said("refused", "user-start") == [("refused", "running")]
    assert played.signed() == []


@pytest.mark.parametrize(
    "answer", [(401, {}), (404, {}), (503, {"should_terminate": True}), (409, {"title": "x"}), (200, None), (200, {})]
)
async def test_R14_nothing_else_is_a_refusal(
    dispatcher: SimpleNamespace, tmp_path: Path, answer: tuple[int, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("random.random", lambda: 0.001)
    dispatcher.answers["running"] = [answer, (200, {"decision": "run", "lease_s": 90})]
    dispatcher.answers["finished"] = [answer, (200, {"decision": "recorded"})]
    played = Played(tmp_path, dispatcher.session, dispatcher.urls)
    assert await played.run() == 0
    assert [what for what, _, _ in dispatcher.asked] == ["running", "running", "finished", "finished"]
    assert played.signed() == ["start", "end"]


@pytest.mark.parametrize(("code", "outcome"), [("0", "success"), ("75", "reschedule"), ("3", "failure")])
async def test_outcome_by_exit_code(dispatcher: SimpleNamespace, tmp_path: Path, code: str, outcome: str):
    played = Played(tmp_path, dispatcher.session, dispatcher.urls, RIDEOUT_WORK_EXIT=code)
    assert await played.run() == int(code)
    assert dispatcher.asked[-1][2]["outcome"] == outcome


async def test_R16_an_agent_that_is_stopped_reports_lost(dispatcher: SimpleNamespace, tmp_path: Path):
    played = Played(tmp_path, dispatcher.session, dispatcher.urls, RIDEOUT_WORK_S="60")
    await played.agent.start()
    await until(lambda: played.signed() == ["start"], "user code to start")
    played.agent.stop()
    async with asyncio.timeout(10):
        assert await played.agent.wait() == 143
    assert dispatcher.asked[-1][2]["outcome"] == "lost"
    assert played.signed() == ["start"], "it did not end by itself"


async def test_R15_a_virtual_agent_ends_by_the_end_of_its_lease(dispatcher: SimpleNamespace, tmp_path: Path):
    dispatcher.answers["running"] = [(200, {"decision": "run", "lease_s": 0.6, "margin_s": 0.2})]
    dispatcher.answers["heartbeat"] = [(503, {})]
    played = Played(tmp_path, dispatcher.session, dispatcher.urls, RIDEOUT_WORK_S="60")
    assert await played.run() == 143
    assert dispatcher.asked[-1][2]["outcome"] == "lost"


async def test_a_killed_virtual_agent_ends_with_137(dispatcher: SimpleNamespace, tmp_path: Path):
    played = Played(tmp_path, dispatcher.session, dispatcher.urls, RIDEOUT_WORK_S="60")
    await played.agent.start()
    await until(lambda: played.signed() == ["start"], "user code to start")
    played.agent.kill()
    async with asyncio.timeout(10):
        assert await played.agent.wait() == 137
    assert [what for what, _, _ in dispatcher.asked if what == "finished"] == []


async def test_a_virtual_agent_without_its_variables_is_a_bad_pod(dispatcher: SimpleNamespace, tmp_path: Path):
    played = Played(tmp_path, dispatcher.session, dispatcher.urls, RIDEOUT_TOKEN="")
    with pytest.raises(BadPod, match="RIDEOUT_TOKEN is not set"):
        await played.agent.start()
    os.close(played.ledger)
