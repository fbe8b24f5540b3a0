"""The dispatchers under test: each lane's replicas as child processes, and what they say over HTTP.

A lane is one dispatcher system with its own database, namespace, replicas and load. What is read here is a *claim*
of the accused: good for the progress display, the pictures and the waits of a run, and no evidence for a verdict.
"""

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from chaos.errors import ChaosError
from chaos.scenarios.base import LaneSpec, Profile
from chaos.testbed import Testbed
from chaos.testbed.processes import ManagedProcess
from chaos.testbed.toxics import DATABASE_PROXY, Proxy

REPOSITORY = Path(__file__).resolve().parents[1]
AGENT = REPOSITORY / "dispatcher" / "agent.py"
START_DEADLINE_S = 60.0
"""Importing a dispatcher takes a second on an idle machine; four at once beside a control plane take longer."""
STOP_GRACE_S = 25.0
"""R25: creates under way may finish within their deadline of 15 s."""
CALL_DEADLINE_S = 5.0
PAGE = 1000

Row = dict[str, Any]


@dataclass(slots=True)
class Lane:
    """One dispatcher system while it runs. `rows` and `figures` ask its replicas in turn until one answers."""

    spec: LaneSpec
    namespace: str
    urls: list[str]
    outcome_logs: list[Path]
    processes: list[ManagedProcess]
    """The replicas, in the order of `urls`; process n is called <lane>-<n> in claims and in the leadership table."""
    session: aiohttp.ClientSession
    agents: list[Proxy] = field(default_factory=list)
    """Between the lane's agents and each replica, in the order of `urls`. The suite and its load go direct."""

    @property
    def name(self) -> str:
        return self.spec.name

    async def rows(self, **filters: str) -> list[Row]:
        """All task instances that match (state=, reason=), paging through. Raises ChaosError if none answers."""
        rows: list[Row] = []
        cursor: str | None = None
        while True:
            query = {**filters, "limit": str(PAGE), **({"cursor": cursor} if cursor else {})}
            page = json.loads(await self._get("/v1/tasks", query))
            rows += page["tasks"]
            if (cursor := page.get("next_cursor")) is None:
                return rows

    async def metrics(self) -> list[tuple[str, dict[str, str], float]]:
        """Every sample of every replica that answers, as (name, labels, value). Raises ChaosError if none does."""
        from prometheus_client.parser import text_string_to_metric_families

        texts = await asyncio.gather(*(self._ask(url, "/metrics", {}) for url in self.urls), return_exceptions=True)
        answered = [text for text in texts if isinstance(text, str)]
        if not answered:
            raise ChaosError(
                f"no replica of lane {self.name} answers /metrics: {texts[0]!r}", log=self.processes[0].log
            )
        return [
            (sample.name, sample.labels, sample.value)
            for text in answered
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    async def _get(self, path: str, query: dict[str, str]) -> str:
        trouble = ""
        for url in self.urls:
            try:
                return await self._ask(url, path, query)
            except (aiohttp.ClientError, OSError, TimeoutError, ChaosError) as error:
                trouble = f"{url}{path}: {str(error) or type(error).__name__}"
        raise ChaosError(f"lane {self.name} does not answer: {trouble}", log=self.processes[0].log)

    async def _ask(self, url: str, path: str, query: dict[str, str]) -> str:
        async with asyncio.timeout(CALL_DEADLINE_S):
            async with self.session.get(url + path, params=query) as answer:
                body = await answer.text()
        if answer.status != 200:
            raise ChaosError(f"answered {answer.status}: {body[:200]}")
        return body


@asynccontextmanager
async def running(
    specs: Iterable[LaneSpec], bed: Testbed, run_dir: Path, profile: Profile
) -> AsyncIterator[dict[str, Lane]]:
    """Migrate each lane's database, start all replicas, and stop them (SIGTERM, R25) when the block is left."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            aiohttp.ClientSession(trust_env=False, timeout=aiohttp.ClientTimeout(total=None))
        )
        database = Proxy(DATABASE_PROXY, f"127.0.0.1:{bed.ports.take()}", f"127.0.0.1:{bed.database.port}")
        lanes = {spec.name: _prepare(spec, bed, database, run_dir, profile, session) for spec in specs}
        for proxy in (database, *(proxy for lane in lanes.values() for proxy in lane.agents)):
            stack.push_async_callback(_leave, bed, proxy)
            await asyncio.to_thread(bed.proxies.join, proxy)
        await asyncio.gather(*(_migrate(lane, bed) for lane in lanes.values()))
        stack.push_async_callback(stop, lanes.values())
        for process in (process for lane in lanes.values() for process in lane.processes):
            process.start()
        for process in (process for lane in lanes.values() for process in lane.processes):
            await process.wait_ready(START_DEADLINE_S)
        yield lanes


async def _leave(bed: Testbed, proxy: Proxy) -> None:
    """A Toxiproxy that hangs or is gone must not keep a run from ending."""
    with suppress(ChaosError):
        await asyncio.to_thread(bed.proxies.leave, proxy.name)


async def stop(lanes: Iterable[Lane]) -> None:
    """Ask every replica to stop, all at once, and wait for it. Safe to call twice."""
    await asyncio.gather(*(p.terminate(STOP_GRACE_S) for lane in lanes for p in lane.processes))


def _prepare(
    spec: LaneSpec, bed: Testbed, database: Proxy, run_dir: Path, profile: Profile, session: aiohttp.ClientSession
) -> Lane:
    ports = [bed.ports.take() for _ in range(spec.replicas)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    agents = [
        Proxy(f"agents-{spec.name}-{number}", f"127.0.0.1:{bed.ports.take()}", f"127.0.0.1:{port}")
        for number, port in enumerate(ports, start=1)
    ]
    through = replace(bed.database, port=int(database.listen.rpartition(":")[2]))
    shared = {
        "RIDEOUT_DATABASE_URL": through.url(f"rideout_{spec.name}", driver="postgresql+psycopg"),
        "RIDEOUT_ADVERTISE_URLS": ",".join(f"http://{proxy.listen}" for proxy in agents),
        "RIDEOUT_MODE": spec.mode,
        "RIDEOUT_POLICY": spec.policy,
        "RIDEOUT_PROFILE": profile,
        "RIDEOUT_KUBECONFIG": str(bed.kubeconfig("dispatcher")),
        "RIDEOUT_NAMESPACE": bed.namespaces[spec.name],
        "RIDEOUT_SIGNING_KEYS": secrets.token_hex(32),
        "RIDEOUT_AGENT_COMMAND": json.dumps([sys.executable, "-I", "-S", str(AGENT)]),
        "RIDEOUT_LOG_FORMAT": "json",
        **spec.env,
    }
    lane = Lane(spec, bed.namespaces[spec.name], urls, [], [], session, agents)
    for number, port in enumerate(ports, start=1):
        outcomes = run_dir / "logs" / f"outcomes-{spec.name}-{number}.jsonl"
        env = {
            **shared,
            "RIDEOUT_LISTEN": f"127.0.0.1:{port}",
            "RIDEOUT_REPLICA": f"{spec.name}-{number}",
            "RIDEOUT_OUTCOME_LOG": str(outcomes),
        }
        argv = [sys.executable, *spec.program, "serve"]
        process = bed.supervisor.process(
            f"dispatcher-{spec.name}-{number}", argv, env=env, cwd=REPOSITORY, ready=_ready(session, urls[number - 1])
        )
        lane.outcome_logs.append(outcomes)
        lane.processes.append(process)
    return lane


async def _migrate(lane: Lane, bed: Testbed) -> None:
    argv = [sys.executable, *lane.spec.program, "migrate"]
    migration = bed.supervisor.process(f"migrate-{lane.name}", argv, env=lane.processes[0].env, cwd=REPOSITORY)
    migration.start()
    if code := await migration.wait_exit(START_DEADLINE_S):
        raise ChaosError(
            f"the migration of lane {lane.name} ended with {code}: {migration.telling()}", log=migration.log
        )


def _ready(session: aiohttp.ClientSession, url: str) -> Any:
    async def ready() -> bool:
        try:
            async with asyncio.timeout(CALL_DEADLINE_S), session.get(f"{url}/readyz") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    return ready


async def settings_of(lane: Lane) -> dict[str, Any]:
    """The settings the lane's dispatchers run with, as `python -m dispatcher config` prints them."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *lane.spec.program,
        "config",
        env={**os.environ, **lane.processes[0].env},
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return dict(json.loads(output))
