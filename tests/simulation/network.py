"""The way of a report from an agent to a replica and back: slow, lossy, doubled, cut, as the schedule wants it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

from tests.simulation.agents import AgentProcess, Request
from tests.simulation.ground import Ground, Report
from tests.simulation.process import Killed, Process

Answered = tuple[int, str, bytes]


class Door(Protocol):
    """A replica's HTTP server, while it listens."""

    process: Process

    def handle(self, what: str, row: int, token: str, body: bytes) -> Coroutine[Any, Any, Answered]: ...


class Network:
    """`cut` holds (pod uid or '', replica or ''): '' is everybody. `trouble` is the share of reports that suffer."""

    def __init__(self, ground: Ground, door_of: Callable[[str], Door | None]) -> None:
        self._ground, self._door_of = ground, door_of
        self.cut: set[tuple[str, str]] = set()
        self.trouble = 0.0
        self.on_answer: Callable[[Report], None] = lambda report: None

    def is_cut(self, pod_uid: str, replica: str) -> bool:
        return any(pod in ("", pod_uid) and to in ("", replica) for pod, to in self.cut)

    def send(self, process: AgentProcess, request: Request, url: str, path: str, token: str, body: bytes) -> None:
        ground = self._ground
        replica = urlsplit(url).hostname or ""
        if self.is_cut(process.pod.uid, replica):
            return
        way_s = 0.005 + 0.05 * ground.draw()
        arrives, answers = [way_s], True
        if ground.draw() < self.trouble:
            match int(ground.draw() * 5):
                case 0:
                    arrives = []
                case 1:
                    arrives = [30 * ground.draw()]
                case 2:
                    arrives = [way_s, way_s + 40 * ground.draw()]
                case 3:
                    arrives = [30 * ground.draw(), 90 * ground.draw()]
                case _:
                    answers = False
        for n, delay in enumerate(arrives):
            first = request if n == 0 and answers else None
            ground.later(delay, self._arrive, process, first, replica, path, token, body)

    def _arrive(
        self, process: AgentProcess, request: Request | None, replica: str, path: str, token: str, body: bytes
    ) -> None:
        door = self._door_of(replica)
        if door is None:
            if request is not None:
                request.answer(None, "ConnectionRefusedError")
            return
        self._ground.spawn(self._serve(process, request, door, replica, path, token, body))

    async def _serve(
        self, agent: AgentProcess, request: Request | None, door: Door, replica: str, path: str, token: str, body: bytes
    ) -> None:
        ground, said = self._ground, orjson.loads(body)
        row, what = int(path.split("/")[3]), path.split("/")[4]
        try:
            await door.process.awake()  # a frozen replica's kernel still takes the connection
        except Killed:
            return
        report = Report(ground.now, what, row, said["epoch"], said["pod_uid"], said["nonce"], said.get("outcome"))
        ground.notes.reports.append(report)
        work = door.process.spawn(door.handle(what, row, token, body), name=f"report-{row}")
        await asyncio.wait([work])
        if work.cancelled() or work.exception() is not None:
            return  # the replica died; so did the connection
        code, content_type, answer = work.result()
        report.status, report.body = code, answer.decode()
        report.refused = code == 409 and b'"should_terminate":true' in answer
        self.on_answer(report)
        if request is None or self.is_cut(agent.pod.uid, replica):
            return
        if what == "running" and code == 200 and ground.loop.time() < request.give_up_at:
            ground.notes.accepted.add(report.nonce)
        if report.refused:
            ground.notes.refused.add(report.nonce)
        request.answer((code, content_type, answer), None)
