"""An agent without a process: the node speaks the agent's protocol itself and "works" by waiting.

For the quick profile, where starting hundreds of Python processes on two cores would be the load. It speaks the
protocol of `dispatcher/agent.py` (report RUNNING until answered; a refusal ends it with exit code 0 before any user
code; heartbeats under a lease; report the end until answered), and writes the ledger lines of `chaos/traffic/work.py`.
What it cannot show is what needs a process: that user code dies with its agent, and how long a real start takes.
"""

import asyncio
import contextlib
import os
import random
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from chaos.testbed.kube import TRANSPORT_ERRORS, Json
from chaos.testbed.node.manifest import BadPod, PodSpec
from chaos.traffic import work

REQUEST_S = 5.0  # R14
APART_S = 10.0  # R14
MARGIN = 1 / 6  # of the lease: 15 of 90 s (R15)
STOPPED = 128 + signal.SIGTERM
DECISIONS = {"running": "run", "heartbeat": "renewed", "finished": "recorded"}
NEEDED = ("RIDEOUT_ROW", "RIDEOUT_EPOCH", "RIDEOUT_TRY", "RIDEOUT_TOKEN", "RIDEOUT_DISPATCHERS", "RIDEOUT_LEDGER")


def suits(spec: PodSpec) -> bool:
    """Whether the pod is the agent around the suite's own user code, the only thing that can be played."""
    agent, separator, code = _split(spec.argv)
    return (
        bool(separator)
        and any(word.endswith("agent.py") for word in agent)
        and (any(word.endswith("traffic/work.py") or word == "chaos.traffic.work" for word in code))
    )


def _split(argv: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in argv:
        return argv, False, []
    place = argv.index("--")
    return argv[:place], True, argv[place + 1 :]


@dataclass(frozen=True)
class Answer:
    """A dispatcher's word on a report: accepted (with its fields) or refused."""

    accepted: bool
    fields: Json
    sent_at: float


class Refused(Exception):
    """The dispatcher said should_terminate."""


class VirtualAgent:
    """One attempt. The same life as a Container, without the process."""

    def __init__(
        self,
        spec: PodSpec,
        session: aiohttp.ClientSession,
        ledger: int,
        defaults: dict[str, str],
        hear: Callable[[Json], None],
    ) -> None:
        """`ledger` is a descriptor open for appending; `hear` takes the events an agent would say on stderr."""
        self._env = {**defaults, **spec.env}
        self._uid = spec.uid
        self._session = session
        self._ledger = ledger
        self._hear = hear
        self._nonce = secrets.token_hex(16)
        addresses = self._env.get("RIDEOUT_DISPATCHERS", "").split(",")
        self._urls = [address.strip().rstrip("/") for address in addresses if address.strip()]
        self._stopping = asyncio.Event()
        self._life: asyncio.Task[int] | None = None

    async def start(self) -> None:
        if missing := [name for name in NEEDED if not self._env.get(name)]:
            raise BadPod(f"the agent's {', '.join(missing)} is not set")
        self._life = asyncio.create_task(self._live())

    async def wait(self) -> int:
        assert self._life is not None
        try:
            return await self._life
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise  # the node itself stops
            return 128 + signal.SIGKILL

    def stop(self) -> None:
        self._stopping.set()

    def kill(self) -> None:
        if self._life:
            self._life.cancel()

    async def _live(self) -> int:
        answer = await self._ask("running", patience=self._stopping)
        if answer is None or self._stopping.is_set():
            if answer is not None and answer.accepted:
                await self._report_end("lost", None)
            return STOPPED if answer is None or answer.accepted else 0
        if not answer.accepted:
            return 0
        return await self._run(answer)

    async def _run(self, running: Answer) -> int:
        self._say("user-start")
        await self._sign("start")
        working = asyncio.create_task(asyncio.sleep(float(self._env.get("RIDEOUT_WORK_S", "1"))))
        fenced = asyncio.create_task(self._keep_lease(running))
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({working, fenced, stopped}, return_when=asyncio.FIRST_COMPLETED)
            why = fenced.result() if fenced.done() else ""
            fenced.cancel()  # what has ended needs no lease: its end is reported past it too (R16)
            if working.done():
                code = int(self._env.get("RIDEOUT_WORK_EXIT", "0"))
                await self._sign("end", work.outcome_of(code))
                self._say("user-end", code=code)
                answered = await self._report_end(work.outcome_of(code), code)
                return code if answered.accepted else 0
            self._say("user-end", code=STOPPED)
            if why == "refused":
                return 0
            answered = await self._report_end("lost", STOPPED)
            return STOPPED if answered.accepted else 0
        finally:
            for task in (working, fenced, stopped):
                task.cancel()

    async def _keep_lease(self, running: Answer) -> str:
        """Renew until the lease is lost ("lease") or a heartbeat is refused ("refused"); returns which."""
        newest = running
        while True:
            lease_s = float(newest.fields.get("lease_s") or 90)
            usable_s = lease_s - float(newest.fields.get("margin_s") or lease_s * MARGIN)
            dead_at = newest.sent_at + usable_s
            pause_s = newest.sent_at + float(newest.fields.get("heartbeat_s") or usable_s / 4) - _clock()
            await asyncio.sleep(max(0.0, pause_s))
            try:
                async with asyncio.timeout(max(0.0, dead_at - _clock())):
                    answer = await self._ask("heartbeat")
            except TimeoutError:
                return "lease"
            if answer is None or not answer.accepted:
                return "refused"
            newest = answer

    async def _report_end(self, outcome: str, code: int | None) -> Answer:
        answer = await self._ask("finished", outcome=outcome, exit_code=code, reschedule_after_s=None)
        assert answer is not None
        return answer

    async def _ask(self, what: str, *, patience: asyncio.Event | None = None, **fields: Any) -> Answer | None:
        """Report to every replica in turn until one decides; None when `patience` is set before that (R14, R16)."""
        if what != "heartbeat":
            self._say("report", what=what, **fields)
        body = {"epoch": int(self._env["RIDEOUT_EPOCH"]), "pod_uid": self._uid, "nonce": self._nonce, **fields}
        tries = 0
        while patience is None or not patience.is_set():
            sent_at = _clock()
            decided, told = await self._post(what, body)
            if decided is not None:
                if what != "heartbeat" or not decided:
                    self._say("accepted" if decided else "refused", what=what, **told)
                return Answer(decided, told, sent_at)
            tries += 1
            self._urls.append(self._urls.pop(0))
            self._say("retry", what=what, error=told["error"])
            rounds, place = divmod(tries, len(self._urls))
            pause_s = 0.0 if place else random.random() * min(APART_S, 0.5 * 2 ** min(rounds, 10))
            if patience is None:
                await asyncio.sleep(pause_s)
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(patience.wait(), pause_s)
        return None

    async def _post(self, what: str, body: Json) -> tuple[bool | None, Json]:
        """(True, answer) accepted, (False, {"reason"}) refused, (None, {"error"}) ask again."""
        url = f"{self._urls[0]}/v1/attempts/{self._env['RIDEOUT_ROW']}/{what}"
        headers = {"Authorization": f"Bearer {self._env['RIDEOUT_TOKEN']}"}
        try:
            async with asyncio.timeout(REQUEST_S):
                async with self._session.post(url, json=body, headers=headers, allow_redirects=False) as response:
                    said = await response.json(content_type=None)
                    status, kind = response.status, response.content_type
        except (*TRANSPORT_ERRORS, ValueError) as error:
            return None, {"error": f"{type(error).__name__}: {error}"}
        if not isinstance(said, dict):
            return None, {"error": f"HTTP {status} without a JSON object"}
        if status == 409 and kind == "application/problem+json" and said.get("should_terminate") is True:
            return False, {"reason": str(said.get("reason") or said.get("detail") or "")}
        if status == 200 and said.get("decision") == DECISIONS[what]:
            return True, said
        return None, {"error": f"HTTP {status} {said.get('title', '')}".rstrip()}

    def _say(self, event: str, **fields: Any) -> None:
        identity = {
            "row": int(self._env["RIDEOUT_ROW"]),
            "epoch": int(self._env["RIDEOUT_EPOCH"]),
            "pod_uid": self._uid,
            "nonce": self._nonce,
        }
        self._hear({"agent": event, **fields, **identity})

    async def _sign(self, event: str, outcome: str | None = None) -> None:
        """A ledger line on disk before anything else happens, as the user code does it."""
        env = {**self._env, "RIDEOUT_POD_UID": self._uid, "RIDEOUT_NONCE": self._nonce}
        os.write(self._ledger, work.line(event, env, time.monotonic(), outcome))
        await asyncio.to_thread(os.fsync, self._ledger)


def _clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
