"""One replica: the product's own modules, started in a process, and stepped by due times instead of by pauses.

`dispatcher.loop` ticks every second; nearly all of its ticks find nothing. Here each of its steps runs at the first
tick at which it can find something, so that fifteen minutes take milliseconds. The loop itself runs unchanged, in
virtual time and with every tick, in `test_the_loop_in_virtual_time.py`.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import cache
from typing import Any, cast

import orjson
import psycopg
from fastapi import FastAPI
from pydantic import SecretStr
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from starlette.requests import Request

from dispatcher import loop as main_path
from dispatcher.api import agents, problems
from dispatcher.api.services import Services
from dispatcher.clock import Clock, local_seconds
from dispatcher.dispatch import Offers
from dispatcher.executors.kubernetes import KubernetesExecutor
from dispatcher.executors.limiter import RateLimiter
from dispatcher.executors.pods import KubernetesPods
from dispatcher.leadership import Leadership
from dispatcher.outage import ApiHealth
from dispatcher.planner import plan
from dispatcher.podgc import PodGc
from dispatcher.reaper import Reaper
from dispatcher.settings import Mode, Settings
from dispatcher.store.recovery import RePlacePolicy
from dispatcher.telemetry import Metrics
from dispatcher.tokens import AttemptTokens
from dispatcher.witness import Observer
from tests.simulation.cluster import Cluster
from tests.simulation.gate import Gate
from tests.simulation.ground import INSTANT_S, Ground
from tests.simulation.history import Row
from tests.simulation.judge import Judge
from tests.simulation.process import Process

DATABASE_PAUSE_S = 1.0
LOOK_AGAIN_S = 20.0
"""Between two looks at a silent pod, and at all pods: `loop` looks every tick and every 15 s."""
CLEAN_S = ORPHANS_S = 60.0
KEY = "simulation"


@cache
def metrics() -> Metrics:
    return Metrics()


@cache
def handlers() -> dict[Any, Callable[..., Awaitable[Any]]]:
    """How the product's API turns an exception into an answer."""
    app = FastAPI()
    problems.install(app)
    return dict(cast(dict[Any, Any], app.exception_handlers))


@cache
def settings_of(mode: Mode, replica: str, slots: int) -> Settings:
    return Settings(
        mode=mode,
        replica=replica,
        slots=slots,
        buffer=64,
        advertise_urls=["http://r1", "http://r2"],
        signing_keys=[SecretStr(KEY)],
        namespace="tasks",
    )


class SimClock(Clock):
    """The product's clock, set by the simulated database's."""

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self._ground = ground

    async def sync(self, connection: AsyncConnection) -> None:
        await connection.execute(select(1))
        self._database_at, self._local_at = self._ground.wall, local_seconds()


class SimLeadership(Leadership):
    """The product's leadership. The renewals of a leader that nothing threatens are all alike: one stands for them.

    `renew_ahead` renews as if it had been renewed all the time until then. Should something threaten the leader
    earlier, `cut_back` leaves what the last real renewal before now would have left.
    """

    @property
    def expires_in_s(self) -> float:
        return (self._expires_at - self._clock.now()).total_seconds() if self._expires_at is not None else -1.0

    async def renew_ahead(self, seconds: float) -> None:
        lease_s = self._lease_s
        self._lease_s = lease_s + seconds
        try:
            await self.renew()
        finally:
            self._lease_s = lease_s

    def cut_back(self, admin: psycopg.Connection, last_renewal_s_ago: float) -> None:
        expires_at = self._clock.now() + timedelta(seconds=self._lease_s - last_renewal_s_ago)
        if self._expires_at is not None and self._expires_at > expires_at:
            self._expires_at = expires_at
            for table in ("leadership", "leadership_terms"):
                admin.execute(
                    f"UPDATE {table} SET expires_at = %s WHERE term = %s AND holder = %s",
                    [expires_at, self.term, self._holder],
                )


class SimLimiter(RateLimiter):
    """The product's limiter, whose bucket the schedule may find empty."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.rate_limit, settings.rate_burst, settings.rate_wait_s)
        self.refusals = 0

    async def admit(self) -> bool:
        if self.refusals > 0:
            self.refusals -= 1
            return False
        return await super().admit()


class Replica:
    """One slot `r1` or `r2`; its process may die and be started again."""

    def __init__(self, name: str, ground: Ground, gate: Gate, cluster: Cluster, judge: Judge) -> None:
        self.name = name
        self._ground, self._gate, self._cluster, self._judge = ground, gate, cluster, judge
        self.process: Process | None = None
        self._booted = False
        self.stopping = False
        self._starts = 0
        self.phase = 0.9 * ground.chance("phase", name)
        """Where in a second its ticks fall."""
        self._steps: dict[str, Callable[[], Awaitable[None]]] = {}

    # ---- the process

    def start(self, mode: Mode, slots: int) -> None:
        self._starts += 1
        self.mode = mode
        self.settings = settings_of(mode, self.name, slots)
        self.process = Process(f"{self.name}#{self._starts}", self._ground.loop)
        self._booted = self.stopping = False
        self._running: dict[str, asyncio.Task[None]] = {}
        self._last: dict[str, float] = {"clean": self._ground.now}
        self._not_before: dict[str, float] = {}
        self._renewed_at = self._kept_at = -math.inf
        self._ground.tell(f"{self.process.name} starts, {mode}")
        self.process.spawn(self._boot(self.process), name="boot")

    async def _boot(self, process: Process) -> None:
        engine = cast(AsyncEngine, self._gate.engine_of(process))
        clock = SimClock(self._ground)
        while True:
            try:
                async with engine.connect() as connection:
                    await clock.sync(connection)
                break
            except (SQLAlchemyError, OSError):
                await asyncio.sleep(DATABASE_PAUSE_S)
        settings, tokens, self.health = self.settings, AttemptTokens([KEY]), ApiHealth()
        self.limiter = SimLimiter(settings)
        executor = KubernetesExecutor(
            clock=clock,
            sign=tokens.sign,
            kubeconfig=None,
            agent_command=settings.agent_command,
            dispatchers=settings.advertise_urls,
            deadline_s=settings.create_deadline_s,
            limiter=self.limiter,
            connections=settings.slots,
        )
        connection = cast(Any, self._cluster.client(process))
        executor.connection = connection
        self.offers = Offers(
            engine=engine,
            clock=clock,
            executor=executor,
            policy=settings.rules,
            replica=process.name,
            claim_s=settings.claim_s,
            mark_queued=settings.mode is Mode.BUFFERED,
            witness=Observer(metrics=metrics(), health=self.health, replica=process.name),
        )
        self.path = main_path.path_of(settings, self.offers, clock)
        self.leadership = SimLeadership(engine, clock, holder=process.name, lease_s=settings.leader_lease_s)
        self.services = Services(settings, engine, clock, tokens, metrics(), self.health, self.leadership)
        pods = KubernetesPods(connection, instance=settings.instance, deadline_s=settings.create_deadline_s)
        reaper = Reaper(
            engine=engine,
            clock=clock,
            pods=pods,
            health=self.health,
            policy=RePlacePolicy(settings.re_place_s, settings.re_place_max_s),
            lease_s=settings.lease_s,
            placed_timeout_s=settings.placed_timeout_s,
            orphan_run_s=settings.orphan_run_s,
        )
        podgc = PodGc(
            engine=engine,
            clock=clock,
            pods=pods,
            health=self.health,
            namespace=settings.namespace,
            finished_ttl_s=settings.finished_pod_ttl_s,
        )

        async def clean() -> None:
            await podgc.round()

        async def lead() -> None:
            self._renewed_at = self._ground.now
            await self.leadership.renew()

        self._steps = {
            "lead": lead,
            "plan": lambda: plan(engine, clock),
            "dispatch": self._dispatch,
            "reap": lambda: reaper.round(self.leadership.steady_since),
            "clean": clean,
        }
        self._booted = True

    def kill(self) -> None:
        if self.process is not None and not self.process.dead:
            self._ground.tell(f"{self.process.name} is killed")
            self.process.kill()

    def stop(self) -> None:
        """SIGTERM (R25): give back, see out, resign, end."""
        if self.process is None or not self.up or self.stopping:
            return
        self.stopping = True
        self._ground.tell(f"{self.process.name} is told to stop")

        async def drain() -> None:
            await self.path.drain()
            await self.leadership.resign()
            asyncio.get_running_loop().call_soon(self.kill)

        self.process.spawn(drain(), name="drain")

    @property
    def up(self) -> bool:
        """Its HTTP server listens; a frozen one's too."""
        return self._booted and self.process is not None and not self.process.dead

    @property
    def healthy(self) -> bool:
        return self.up and not self.stopping and self.process is not None and self.process.healthy

    @property
    def leads(self) -> bool:
        if not self.healthy:
            return False
        assert self.process is not None
        return self.process.context.run(lambda: self.leadership.leads)

    # ---- its steps, at the ticks where they can find something

    async def _dispatch(self) -> None:
        while self.leadership.leads:
            room = await self.path.room()
            claims = await self.offers.claim(room)
            self.path.take(claims)
            if len(claims) < room:  # a claim that came back full is followed by the next at once (R18)
                return

    def next_tick(self, somebody_leads: bool, paused: bool) -> float:
        return min((self._tick(step, somebody_leads, paused) for step in self._steps), default=math.inf)

    def launch(self, somebody_leads: bool, paused: bool) -> bool:
        """Start every step whose tick has come; whether there was one."""
        launched = False
        for step in self._steps if self.healthy else ():
            if self._tick(step, somebody_leads, paused) <= self._ground.now + INSTANT_S:
                self._run(step, self._steps[step])
                launched = True
        return launched

    def keep_leading(self, when: float, *, ahead_s: float) -> bool:
        """Renew if a renewal is due before `when`, as if for `ahead_s` nothing came in between; whether it was
        started."""
        now, settings = self._ground.now, self.settings
        if not self.leads or self._gate.down or self._gate.stalled or self._kept_at == now:
            return False
        if self.leadership.expires_in_s >= when - now + settings.leader_lease_s - settings.leader_renew_s:
            return False
        self._kept_at = self._renewed_at = now
        self._run("lead", lambda: self.leadership.renew_ahead(max(ahead_s, when - now)))
        return True

    def threatened(self, admin: psycopg.Connection) -> None:
        """Something is about to happen to this leader: take the renewals back that it will not make."""
        if self.up and self.process is not None and not self.process.dead:
            ago = (self._ground.now - self.phase) % self.settings.leader_renew_s
            self.process.context.run(self.leadership.cut_back, admin, ago)

    def _run(self, step: str, work: Callable[[], Awaitable[None]]) -> None:
        assert self.process is not None
        self._last[step] = self._ground.now

        async def guarded() -> None:
            try:
                await work()
            except (SQLAlchemyError, OSError):
                self._not_before[step] = self._ground.now + DATABASE_PAUSE_S
            except Exception as error:
                self._ground.notes.bugs.append(f"{step}: {error!r}")

        self._running[step] = self.process.spawn(guarded(), name=step)

    def _tick(self, step: str, somebody_leads: bool, paused: bool) -> float:
        """The first tick, now or later, at which this step can find something to do."""
        if not self.healthy or (step in self._running and not self._running[step].done()):
            return math.inf
        due = self._due(step, somebody_leads, paused)
        if due == math.inf:
            return math.inf
        last = self._last.get(step, -math.inf)
        due = max(due, last + self.settings.tick_s / 2, self._not_before.get(step, 0.0), self._ground.now)
        return self.phase + math.ceil(due - self.phase - INSTANT_S)

    def _due(self, step: str, somebody_leads: bool, paused: bool) -> float:
        now, leads = self._ground.now, self.leads
        if step == "lead":
            if leads and not self._gate.down:
                return math.inf  # `keep_leading` renews
            return math.inf if somebody_leads and not leads else self._renewed_at + self.settings.leader_renew_s
        if not leads:
            return math.inf
        rows = self._judge.rows.values()
        match step:
            case "dispatch":
                return math.inf if paused else min(map(_claimable_at, rows), default=math.inf)
            case "plan":
                over = any(
                    state == "running" and all(one.ended for one in rows if one.run_id == run)
                    for run, state in self._judge.runs.items()
                )
                return now if over else min(map(_planned_at, rows), default=math.inf)
            case "reap":
                return self._reap_due(now)
            case _:
                pods = self._cluster.pods and not self.health.down
                return self._last.get("clean", now) + CLEAN_S if pods else math.inf

    def _reap_due(self, now: float) -> float:
        steady = self.leadership.steady_since
        orphans = self._last.get("reap", -math.inf) + ORPHANS_S
        if steady is None:
            return orphans
        from_then = (steady - self._ground.wall + timedelta(seconds=now + self.settings.lease_s)).total_seconds()
        due = math.inf
        for row in self._judge.rows.values():
            if row.state == "running" and row.lease_until is not None:
                due = min(due, row.lease_until)
            elif row.state == "queued" and not row.claimed and row.queued_at is not None:
                look = self._last.get("reap", -math.inf) + LOOK_AGAIN_S
                due = min(due, max(row.queued_at + self.settings.placed_timeout_s, look))
        return min(orphans, max(due, from_then))

    # ---- its HTTP server, as far as agents see it

    async def handle(self, what: str, row: int, token: str, body: bytes) -> tuple[int, str, bytes]:
        path = f"/v1/attempts/{row}/{what}"
        headers = [(b"authorization", f"Bearer {token}".encode())]
        request = Request({"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""})
        try:
            signed = agents.attempt(row, request, self.services)
            match what:
                case "running":
                    said = await agents.running(signed, agents.FromAgent.model_validate_json(body), self.services)
                case "heartbeat":
                    said = await agents.heartbeat(signed, agents.FromAgent.model_validate_json(body), self.services)
                case _:
                    said = await agents.finished(signed, agents.Finished.model_validate_json(body), self.services)
        except Exception as error:
            handle = next(handlers()[kind] for kind in type(error).__mro__ if kind in handlers())
            response = await handle(request, error)
            return response.status_code, response.headers["content-type"], bytes(response.body)
        return 200, "application/json", _json(said)


def _json(said: dict[str, Any]) -> bytes:
    return orjson.dumps(said)


def _claimable_at(row: Row) -> float:
    return row.next_offer_at if row.state == "scheduled" and not row.claimed else math.inf


def _planned_at(row: Row) -> float:
    if row.claimed and row.claim_until is not None:
        return row.claim_until
    return row.next_offer_at if row.state in ("up_for_retry", "up_for_reschedule") else math.inf
