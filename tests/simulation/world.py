"""The simulated world of one schedule: database, replicas, API, node and network, and the time they live in."""

import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from unittest import mock

import psycopg
import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from dispatcher.settings import Mode
from dispatcher.store import operators, submissions
from tests.simulation.agents import AgentProcess, Plan, agents_are_simulated
from tests.simulation.cluster import Cluster, Pod
from tests.simulation.faults import MIXES, UP, Mix
from tests.simulation.gate import Gate
from tests.simulation.ground import INSTANT_S, ORIGIN, Ground, Report
from tests.simulation.history import History, Row
from tests.simulation.invariants import Invariant as Must
from tests.simulation.judge import Judge
from tests.simulation.moves import LEASE_S
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.process import Killed, Process, Trap, reach
from tests.simulation.replica import Replica
from tests.simulation.virtual_time import VirtualLoop

OFFERED_WITHIN_S = 3.0
"""A tick, and the creates before it: how long after its time a row may wait for its offer while somebody leads."""
NOTICED_S = 6.0
"""A database that was away for less than a renewal of the leader was away for nobody (R20)."""
ENDS_WITHIN_S = 1.5 * 3600.0
QUIET_S = 300.0
"""How far ahead a leader that nothing threatens renews at once; and how long a healed world is watched."""


class World:
    """Operations, faults and time. Each public method is one thing that can happen."""

    def __init__(
        self,
        loop: VirtualLoop,
        engine: AsyncEngine,
        admin: psycopg.Connection,
        *,
        seed: int,
        mode: Mode = Mode.TICK,
        replicas: int = 1,
        slots: int = 8,
    ) -> None:
        self.loop, self.mode, self.slots = loop, mode, slots
        self.ground = ground = Ground(loop, seed)
        self._admin = admin
        self.plans: dict[int, Plan] = {}
        self.network = Network(ground, self._door_of)
        self.node = Node(ground, self.network, lambda row: self.plans.get(row, Plan()))
        self.cluster = Cluster(ground, self.node.accept, self.node.remove)
        self.node.forget = lambda pod: void(self.cluster.pods.pop(pod.uid, None))
        self.gate = Gate(engine, lambda n: int(ground.draw() * n))
        self.history = History(admin)
        self.history.begin()
        self.judge = Judge(ground, self.history)
        self.network.on_answer = self._answered
        self.replicas = [Replica(f"r{n + 1}", ground, self.gate, self.cluster, self.judge) for n in range(replicas)]
        self.paused = False
        self.steps = 0
        self._operator = Process("operator", loop)
        self._transactions_seen = -1
        self._runs = 0
        self._leader: tuple[str, int | None] | None = None
        self._troubled, self._troubled_at = True, 0.0
        self._api_failures: set[int] = set()
        self._replica_away = False
        self._database_left_at = 0.0
        loop.grant = self.gate.grant

    @property
    def now(self) -> float:
        return self.ground.now

    @property
    def rows(self) -> Sequence[int]:
        return sorted(self.judge.rows)

    # ---- time

    async def begin(self) -> None:
        for one in self.replicas:
            one.start(self.mode, self.slots)
        await self.advance(0)

    async def advance(self, seconds: float) -> None:
        """Let virtual time pass, from event to event, and judge at each."""
        until = self.now + seconds - INSTANT_S / 10
        while True:
            await self.loop.quiet()
            self._observe()
            leads = any(one.leads for one in self.replicas)
            launched = [one.launch(leads, self.paused) for one in self.replicas]
            if any(launched):
                continue
            if self.now >= until:
                return
            ticks = (one.next_tick(leads, self.paused) for one in self.replicas)
            when = min(self.loop.next_timer() - self.ground.began, min(ticks), until)
            if self._keep_leaders(when):
                continue
            self.loop.jump(self.ground.began + when + INSTANT_S / 10)

    async def until(self, condition: Callable[[], bool], what: str, within_s: float = 3600.0) -> float:
        """Let time pass until something holds; the time it took. Says what it waited for."""
        began = self.now
        while not condition():
            if self.now - began >= within_s:
                self.judge.fail(Must.NOT_STUCK, None, f"waited {within_s:g} virtual seconds for {what}")
            await self.advance(min(1.0, within_s - (self.now - began)))
        return self.now - began

    def _keep_leaders(self, when: float) -> bool:
        """A leader that nothing threatens renews all the time; a trap may spring at any of the next events."""
        kept = False
        for one in self.replicas:
            if one.process is not None:
                kept |= one.keep_leading(when, ahead_s=0.0 if one.process.traps else QUIET_S)
        return kept

    def _threaten(self) -> None:
        for one in self.replicas:
            one.threatened(self._admin)

    # ---- judging

    def _observe(self) -> None:
        if not self.gate.idle:
            self.judge.fail(Must.SHORT_TRANSACTIONS, None, "a transaction is open while time passes")
        self._note_leader()
        committed = self.gate.transactions != self._transactions_seen
        self._transactions_seen = self.gate.transactions
        self.judge.observe(committed=committed)
        self._note_api()
        if self._replica_away and all(one.healthy and one.process and not one.process.traps for one in self.replicas):
            self._replica_away = False
            self._excuse("", "end of replica away")
        self._look_for_what_is_not_offered()

    def _answered(self, report: Report) -> None:
        self._note_leader()
        self.judge.answered(report)

    def _note_leader(self) -> None:
        leaders = [(one.process.name, one.leadership.term) for one in self.replicas if one.process and one.leads]
        leader = leaders[0] if leaders else None
        if leader != self._leader:
            self._leader = leader
            self.judge.situation.leader_since = self.now if leader is not None else None
            self._api_failures.clear()

    def _note_api(self) -> None:
        """R20's *down*, from the API's own record of the leader's creates."""
        fresh = [one for one in self.ground.notes.creations if one.returned_at is not None and not one.counted]
        for one in sorted(fresh, key=lambda create: create.returned_at or 0.0):
            one.counted = True
            if self._leader is None or one.process != self._leader[0]:
                continue
            if one.disposition == "unavailable":
                self._api_failures.add(one.row)
            else:
                self._api_failures.clear()
        self.judge.situation.api_down = len(self._api_failures) >= 2

    def _look_for_what_is_not_offered(self) -> None:
        leaders = [one for one in self.replicas if one.leads]
        busy = sum(one.returned_at is None for one in self.ground.notes.creations[-2 * self.slots :])
        troubled = not leaders or self.paused or self.gate.down or self.gate.stalled or busy >= self.slots
        if troubled or self._troubled:  # it ended somewhere between the last look and this one
            self._troubled, self._troubled_at = troubled, self.now
        for row in self.judge.rows.values():
            what, since = self._waits_for(row)
            if self.now - max(since, self._troubled_at) > OFFERED_WITHIN_S:
                self.judge.fail(Must.OFFERED, row.id, f"{what} since {since:.3f}, and nobody moves it")

    def _waits_for(self, row: Row) -> tuple[str, float]:
        """Since when the leader has had something to do with this row, if it has."""
        if row.claimed and row.claim_until is not None:
            return "its claim is dead", row.claim_until
        match row.state:
            case "scheduled" | "up_for_retry" | "up_for_reschedule":
                return "it is due", row.next_offer_at
            case "running" if row.lease_until is not None:
                situation = self.judge.situation
                steady = max(situation.leader_since or 0.0, situation.database_since) + LEASE_S
                return "its lease has run out", max(row.lease_until, steady)
            case _:
                return "", math.inf

    # ---- operators

    async def submit(
        self, plans: Sequence[Plan], *, due_in_s: float = 0.0, retries: int = 0, delay_s: float = 0.0
    ) -> list[int]:
        """Hand a run in: one row for each plan. They are due a few microseconds apart, so that no two tie."""
        self._runs += 1
        key, before = f"run-{self._runs}", set(self.judge.rows)
        due = [self.now + due_in_s + 1e-5 * n for n in range(len(plans))]

        async def insert(connection: AsyncConnection) -> None:
            await submissions.submit_once(
                connection,
                now=self.ground.wall,
                key=key,
                name=key,
                labels={},
                digest="",
                tasks=[
                    {
                        "task_key": f"t{n}",
                        "due_at": at(seconds),
                        "retries": retries,
                        "retry_delay": delay_s,
                        "namespace": "tasks",
                        "spec": {"command": ["true"]},
                    }
                    for n, seconds in enumerate(due)
                ],
            )

        await self._operate(insert)
        added = [row for row in self.rows if row not in before]
        self.plans.update(zip(added, plans, strict=False))
        self.judge.submitted.update(added)
        self.ground.tell(f"submitted rows {added}, due at {due[0]:.3f}, {retries} retries")
        return added

    async def clear(self, row: int) -> None:
        self.judge.orders.clears[row] = self.judge.orders.clears.get(row, 0) + 1
        self.ground.tell(f"row {row} is cleared")
        await self._operate(lambda c: operators.clear_if_not_running(c, [row], now=self.ground.wall))

    async def cancel(self, run: int) -> None:
        self.judge.orders.cancels.add(run)
        self.ground.tell(f"run {run} is cancelled")
        await self._operate(lambda c: operators.cancel_live_rows(c, run, now=self.ground.wall))

    async def pause(self) -> None:
        self.ground.tell("dispatching is paused")
        await self._operate(lambda c: operators.pause(c, now=self.ground.wall))

    async def resume(self, *, restart_windows: bool = False) -> None:
        self.judge.orders.restarts += restart_windows
        self.ground.tell(f"dispatching is resumed, windows {'restarted' if restart_windows else 'kept'}")
        await self._operate(
            lambda c: operators.resume(c, now=self.ground.wall, window_s=900, restart_windows=restart_windows)
        )

    async def _operate(self, work: Callable[[AsyncConnection], Awaitable[Any]]) -> None:
        """An operator's transaction, in line with all others. Without a database it fails, and that is that."""

        async def transact() -> None:
            try:
                async with self.gate.engine_of(self._operator).begin() as connection:
                    await work(connection)
            except (SQLAlchemyError, OSError):
                pass

        task = self._operator.spawn(transact(), name="operator")
        await self.advance(0)
        if not task.done():  # the database is stalled
            task.cancel()
        self._read_pause()

    def _read_pause(self) -> None:
        found = self._admin.execute("SELECT 1 FROM control WHERE paused_at IS NOT NULL").fetchone()
        self.paused = found is not None

    # ---- faults

    def api(self, mix: Mix | str) -> None:
        mix = MIXES[mix] if isinstance(mix, str) else mix
        self.ground.tell(f"the API: {mix.name}")
        self.cluster.behave(mix)

    def kill(self, replica: int, restart_in_s: float) -> None:
        self._away()
        one = self.replicas[replica]
        one.kill()
        self._start_later(one, restart_in_s)

    def stop(self, replica: int) -> None:
        self._away()
        self.replicas[replica].stop()

    def trap(self, replica: int, trap: Trap) -> None:
        one = self.replicas[replica]
        if one.process is not None and one.healthy and not one.process.traps:
            self._away()
            self.ground.tell(f"{one.process.name}: {trap.does} {trap.point}, after {trap.after}")
            one.process.traps.append(trap)

    def start_dead(self) -> None:
        for one in self.replicas:
            if one.process is None or one.process.dead:
                one.start(self.mode, self.slots)

    def freeze(self, replica: int) -> None:
        process = self.replicas[replica].process
        if process is not None and process.healthy:
            self._away()
            self.ground.tell(f"{process.name} is frozen")
            process.freeze()

    def thaw(self, replica: int) -> None:
        process = self.replicas[replica].process
        if process is not None and process.frozen:
            self.ground.tell(f"{process.name} runs on")
            process.thaw()

    def step_wall_clocks(self, seconds: float) -> None:
        """Somebody sets the machines' wall clocks. Nothing may depend on them (R15, R23)."""
        self.ground.tell(f"wall clocks step by {seconds:g} s")
        self.ground.wall_step_s += seconds
        for one in self.replicas:
            if one.process is not None:
                one.process.wall_step_s += seconds

    def database_down(self) -> None:
        self._threaten()
        self._excuse("", "database away")
        self.ground.tell("the database is away")
        self.gate.down = True
        self._database_left_at = self.now

    def database_stalls(self, seconds: float) -> None:
        self._threaten()
        self._excuse("", "database away")
        self.ground.tell(f"the database stalls for {seconds:g} s")
        self.gate.stalled = True
        self.ground.later(seconds, self.database_up)

    def database_up(self) -> None:
        if self.gate.down:
            self.ground.tell("the database is back")
            if self.now - self._database_left_at > NOTICED_S:
                self.judge.situation.database_since = self.now
        self.gate.down = self.gate.stalled = False
        self._excuse("", "end of database away")

    def cut_connections(self) -> None:
        """Terminate every backend of the dispatchers, for real; the pool finds out by itself."""
        self._threaten()
        self._excuse("", "database away")
        self.ground.tell("all database connections are cut")
        self._admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    def partition(self, pod_uid: str = "", replica: str = "") -> None:
        self._excuse(pod_uid, f"partition {replica}")
        self.ground.tell(f"partition: {pod_uid or 'all pods'} | {replica or 'all replicas'}")
        self.network.cut.add((pod_uid, replica))

    def trouble(self, share: float) -> None:
        self._excuse("", "network trouble")
        self.ground.tell(f"{share:.0%} of all reports suffer")
        self.network.trouble = share

    def heal_network(self) -> None:
        self.ground.tell("the network is healed")
        for pod_uid, replica in self.network.cut:
            self._excuse(pod_uid, f"end of partition {replica}")
        self._excuse("", "end of network trouble")
        self.network.cut.clear()
        self.network.trouble = 0.0

    def kill_agent(self, one: AgentProcess) -> None:
        self._excuse(one.pod.uid, "agent killed")
        self.ground.tell(f"agent {one.nonce} is killed")
        one.kill()

    def freeze_agent(self, one: AgentProcess, seconds: float) -> None:
        self._excuse(one.pod.uid, "agent frozen")
        self.ground.tell(f"agent {one.nonce} is frozen for {seconds:g} s")
        one.freeze()
        self.ground.later(seconds, one.thaw)

    def start_twice(self, pod: Pod) -> None:
        self.ground.tell(f"pod {pod.uid} is started once more")
        self.node.start_again(pod)

    def evict(self, pod: Pod) -> None:
        self._excuse(pod.uid, "evicted")
        self.ground.tell(f"pod {pod.uid} is evicted")
        self.node.evict(pod)

    def delete(self, pod: Pod) -> None:
        self._excuse(pod.uid, "deleted")
        self.ground.tell(f"pod {pod.uid} is deleted")
        self.node.remove(pod)

    def lose(self, pod: Pod) -> None:
        self._excuse(pod.uid, "lost")
        self.ground.tell(f"pod {pod.uid} is removed by force")
        self.node.lose(pod)

    # ---- the end

    async def heal(self) -> None:
        """Everything works again."""
        self.ground.tell("everything is healed")
        self.api(UP)
        self.cluster.reads = "ok"
        self.heal_network()
        self.database_up()
        self.node.heal()
        for agent in self.node.agents():
            if agent.frozen:
                agent.thaw()
        for one in self.replicas:
            if one.process is not None:
                one.process.traps.clear()
                one.process.thaw()
            if one.up:
                one.limiter.refusals = 0
        await self.advance(0)
        self.start_dead()
        await self.advance(0)
        if self.paused:
            await self.resume()

    async def finish(self) -> None:
        """Heal, let time pass until every row has ended, and look at what is left (liveness)."""
        await self.heal()
        began = self.now
        while not all(one.ended for one in self.judge.rows.values()):
            if self.now - began > ENDS_WITHIN_S:
                stuck = next(one for one in self.judge.rows.values() if not one.ended)
                self.judge.fail(Must.NOT_STUCK, stuck.id, f"still {stuck.state} ({stuck.reason})")
            await self.advance(60)
        await self.advance(QUIET_S)
        self._look_at_the_end()

    def _look_at_the_end(self) -> None:
        judge, notes = self.judge, self.ground.notes
        if (missing := judge.submitted - judge.rows.keys()) or not judge.submitted <= judge.rows.keys():
            judge.fail(Must.NOT_LOST, None, f"rows {sorted(missing)} are gone")
        for run, state in judge.runs.items():
            if state == "running":
                judge.fail(Must.RUNS, None, f"run {run} still runs; all of its rows have ended")
        for row in judge.rows.values():
            ran = [one for one in notes.executions if one.row == row.id and one.try_number == row.try_number]
            if row.state == "success" and not any(one.outcome == "success" for one in ran):
                judge.fail(Must.FENCE, row.id, "success, and nothing of this try ended so")
        terms = self._admin.execute(
            "SELECT term, holder, began_at, expires_at, resigned FROM leadership_terms ORDER BY term"
        ).fetchall()
        for (_, _, _, ended, _), (term, holder, began, _, _) in pairwise(terms):
            if began < ended:
                judge.fail(Must.TERMS, None, f"term {term} of {holder} began before the one before it had ended")

    async def close(self) -> None:
        """Drop every process and task; the next schedule begins on the same loop."""
        for one in self.replicas:
            one.kill()
        self._operator.kill()
        for agent in self.node.agents():
            agent.kill()
        await self.ground.end()
        self.gate.down = self.gate.stalled = False
        self.loop.grant = lambda: False

    # ---- inside

    def _door_of(self, replica: str) -> Any:
        return next((one for one in self.replicas if one.name == replica and one.up), None)

    def _away(self) -> None:
        self._threaten()
        self._replica_away = True
        self._excuse("", "replica away")

    def _excuse(self, pod_uid: str, name: str) -> None:
        self.ground.notes.excuses.append((self.now, pod_uid, name))

    def _start_later(self, one: Replica, seconds: float) -> None:
        def start() -> None:
            if one.process is None or one.process.dead:
                one.start(self.mode, self.slots)

        self.ground.later(seconds, start)


def at(seconds: float) -> datetime:
    return ORIGIN + timedelta(seconds=seconds)


def void(_: object) -> None: ...


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Put the simulated world under the product's modules: its seams, its local clock, its agents' machines."""

    def keep_bugs(_: Any, name: str, event: Any) -> Any:
        if str(event.get("event", "")).startswith("bug.") and not isinstance(event.get("exc_info"), Killed):
            world.ground.notes.bugs.append(f"{event}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep_bugs], wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with (
        mock.patch("dispatcher.dispatch.reach", reach),
        mock.patch("dispatcher.settler.reach", reach),
        mock.patch("dispatcher.clock.local_seconds", world.loop.time),
        mock.patch("tests.simulation.replica.local_seconds", world.loop.time),
        agents_are_simulated(world.ground),
    ):
        try:
            yield
        finally:
            structlog.configure(**before)
