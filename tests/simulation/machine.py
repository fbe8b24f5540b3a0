"""Random schedules: everything that can happen to a dispatcher, in any order, judged after every step.

Hypothesis draws the schedule and shrinks one that fails; all other chances (latencies, which fault a create meets,
which transaction comes first) follow from `seed`, which is drawn too. So a schedule replays exactly.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dispatcher.settings import Mode
from tests.simulation.agents import AgentProcess, Plan
from tests.simulation.cluster import Pod
from tests.simulation.faults import DOWN, MIXES, NOTHING_STORED
from tests.simulation.invariants import Invariant as Must
from tests.simulation.lasting import Lasting
from tests.simulation.process import Does, Point, Trap
from tests.simulation.virtual_time import Stuck
from tests.simulation.world import World, simulated

STEPS, LONG = 60, 50
LONG_OUTAGE_S = 1000.0
MOST_ROWS = 6

small = st.integers(0, 7)
pauses = st.sampled_from([0.0, 0.2, 1.0, 4.0, 12.0, 25.0, 60.0])
outages = st.sampled_from([5.0, 20.0, 30.0, 57.0])
plans = st.builds(
    Plan,
    takes_s=st.sampled_from([0.5, 20.0, 45.0, 110.0]),
    ends=st.sampled_from(
        [
            ("success",),
            ("success", "success"),
            ("failure",),
            ("failure", "success"),
            ("reschedule", "success"),
            ("reschedule", "failure"),
        ]
    ),
    stops_after_s=st.sampled_from([0.0, 3.0, float("inf")]),
)
_DATABASE = (Point.BEFORE_TRANSACTION, Point.BEFORE_COMMIT, Point.AFTER_COMMIT)
_OPEN = (Point.BEFORE_TRANSACTION, Point.BEFORE_POST, Point.BEFORE_ANSWER)
traps = st.one_of(
    st.tuples(st.sampled_from(list(Point)), st.just(Does.KILL)),
    st.tuples(st.sampled_from(_OPEN), st.just(Does.FREEZE)),
    st.tuples(st.sampled_from(_DATABASE), st.just(Does.ERROR)),
)


@dataclass(slots=True)
class Counts:
    """What the schedules of one run came to."""

    schedules: int = 0
    steps: int = 0
    short: int = 0
    """Schedules of less than 50 steps; they are run, and not counted."""
    crossed: int = 0
    """Schedules in which an offer was Unavailable past its row's window: R4 decided."""
    failed_rows: int = 0
    executions: int = 0
    virtual_s: float = 0.0


class Schedules(RuleBasedStateMachine):
    """One schedule. Each rule is one step: something happens, then time passes."""

    lasting: ClassVar[Lasting]
    counts: ClassVar[Counts] = Counts()

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None
        self.whole = True

    @initialize(
        seed=st.integers(0, 2**20),
        mode=st.sampled_from(list(Mode)),
        replicas=st.sampled_from([1, 2]),
        slots=st.sampled_from([8, 2]),
        outage=st.sampled_from([None, *DOWN, *NOTHING_STORED]),
        old_s=st.sampled_from([1.0, 600.0, 830.0, 870.0]),
        first=st.lists(plans, min_size=1, max_size=2),
        retries=st.integers(0, 2),
    )
    def begin(
        self,
        seed: int,
        mode: Mode,
        replicas: int,
        slots: int,
        outage: str | None,
        old_s: float,
        first: list[Plan],
        retries: int,
    ) -> None:
        """An outage begins before the schedule does, so that many schedules meet a window's end."""
        ground = self.lasting
        self.world = World(
            ground.loop, ground.engine, ground.admin, seed=seed, mode=mode, replicas=replicas, slots=slots
        )
        self.outage = outage is not None
        self._simulated = simulated(self.world)
        self._simulated.__enter__()
        self._do(self.world.begin())
        if outage is not None:
            self.world.api(outage)
        self._do(self.world.submit(first, retries=retries, delay_s=20.0))
        self._go(old_s if outage is not None else 1.0)

    # ---- nothing, or work

    @rule(seconds=pauses)
    def wait(self, seconds: float) -> None:
        self._go(seconds)

    @rule(seconds=outages)
    def wait_on(self, seconds: float) -> None:
        self._go(seconds)

    @rule(seconds=outages)
    def wait_longer(self, seconds: float) -> None:
        self._go(seconds + 15.0)

    @precondition(lambda self: self.world and len(self.world.rows) < MOST_ROWS)
    @rule(
        some=st.lists(plans, min_size=1, max_size=2), due=pauses, retries=st.integers(0, 2), delay=pauses, then=pauses
    )
    def submit(self, some: list[Plan], due: float, retries: int, delay: float, then: float) -> None:
        self._do(self.w.submit(some, due_in_s=due, retries=retries, delay_s=delay))
        self._go(then)

    # ---- the API

    @rule(mix=st.sampled_from(list(MIXES)), again=st.sampled_from(NOTHING_STORED), then=pauses)
    def api(self, mix: str, again: str, then: float) -> None:
        self.w.api(again if self.outage and self.w.now < LONG_OUTAGE_S else mix)
        self._go(then)

    @rule(reads=st.sampled_from(["ok", "429", "500", "cut", "status 200", "partial", "410", "hangs"]), then=pauses)
    def lists(self, reads: str, then: float) -> None:
        self.w.ground.tell(f"lists: {reads}")
        self.w.cluster.reads = reads
        self._go(then)

    @rule(refusals=st.integers(1, 4), then=pauses)
    def limiter_refuses(self, refusals: int, then: float) -> None:
        self.w.ground.tell(f"the limiter refuses {refusals}")
        for one in self.w.replicas:
            if one.up:
                one.limiter.refusals = refusals
        self._go(then)

    # ---- replicas

    @rule(which=small, restart=pauses, then=pauses)
    def kill_replica(self, which: int, restart: float, then: float) -> None:
        self.w.kill(which % len(self.w.replicas), restart)
        self._go(then)

    @rule(which=small, trap=traps, after=st.integers(0, 4), then=pauses)
    def trap_replica(self, which: int, trap: tuple[Point, Does], after: int, then: float) -> None:
        self.w.trap(which % len(self.w.replicas), Trap(*trap, after))
        self._go(then)

    @rule(which=small, then=pauses)
    def stop_replica(self, which: int, then: float) -> None:
        self.w.stop(which % len(self.w.replicas))
        self._go(then)

    @rule(then=pauses)
    def start_replicas(self, then: float) -> None:
        self.w.start_dead()
        self._go(then)

    @rule(which=small, then=pauses)
    def freeze_replica(self, which: int, then: float) -> None:
        self.w.freeze(which % len(self.w.replicas))
        self._go(then)

    @rule(which=small, then=pauses)
    def thaw_replica(self, which: int, then: float) -> None:
        self.w.thaw(which % len(self.w.replicas))
        self._go(then)

    @rule(seconds=st.sampled_from([-7200.0, -30.0, 30.0, 7200.0]), then=pauses)
    def step_wall_clocks(self, seconds: float, then: float) -> None:
        self.w.step_wall_clocks(seconds)
        self._go(then)

    # ---- the database

    @rule(seconds=pauses, then=pauses)
    def database_away(self, seconds: float, then: float) -> None:
        self.w.database_down()
        self._go(seconds)
        self.w.database_up()
        self._go(then)

    @rule(seconds=st.sampled_from([0.5, 3.0, 8.0]), then=pauses)
    def database_stalls(self, seconds: float, then: float) -> None:
        self.w.database_stalls(seconds)
        self._go(then)

    @rule(then=pauses)
    def cut_connections(self, then: float) -> None:
        self.w.cut_connections()
        self._go(then)

    # ---- the network and the node

    @rule(pod=small, everybody=st.booleans(), replica=st.sampled_from(["", "r1", "r2"]), then=pauses)
    def partition(self, pod: int, everybody: bool, replica: str, then: float) -> None:
        one = self._pod(pod)
        self.w.partition("" if everybody or one is None else one.uid, replica)
        self._go(then)

    @rule(share=st.sampled_from([0.2, 0.5, 0.9]), then=pauses)
    def trouble(self, share: float, then: float) -> None:
        self.w.trouble(share)
        self._go(then)

    @rule(then=pauses)
    def heal_network(self, then: float) -> None:
        self.w.heal_network()
        self._go(then)

    @rule(which=small, then=pauses)
    def kill_agent(self, which: int, then: float) -> None:
        if (one := self._agent(which)) is not None:
            self.w.kill_agent(one)
        self._go(then)

    @rule(which=small, seconds=st.sampled_from([5.0, 50.0, 200.0]), then=pauses)
    def freeze_agent(self, which: int, seconds: float, then: float) -> None:
        if (one := self._agent(which)) is not None:
            self.w.freeze_agent(one, seconds)
        self._go(then)

    @rule(which=small, then=pauses)
    def start_twice(self, which: int, then: float) -> None:
        if (pod := self._pod(which)) is not None and pod.started:
            self.w.start_twice(pod)
        self._go(then)

    @rule(which=small, how=st.sampled_from(["evict", "delete", "lose"]), then=pauses)
    def take_pod(self, which: int, how: str, then: float) -> None:
        if (pod := self._pod(which)) is not None:
            {"evict": self.w.evict, "delete": self.w.delete, "lose": self.w.lose}[how](pod)
        self._go(then)

    @rule(full=st.booleans(), broken=st.booleans(), then=pauses)
    def node_trouble(self, full: bool, broken: bool, then: float) -> None:
        self.w.ground.tell(f"the node is {'full' if full else 'free'}, images {'broken' if broken else 'fine'}")
        if full or broken:
            self.w.node.full, self.w.node.image_broken = full, broken
        else:
            self.w.node.heal()
        self._go(then)

    # ---- operators

    @rule(which=small, then=pauses)
    def clear(self, which: int, then: float) -> None:
        self._do(self.w.clear(self.w.rows[which % len(self.w.rows)]))
        self._go(then)

    @rule(which=small, then=pauses)
    def cancel(self, which: int, then: float) -> None:
        runs = sorted(self.w.judge.runs)
        self._do(self.w.cancel(runs[which % len(runs)]))
        self._go(then)

    @rule(seconds=pauses, restart=st.booleans(), then=pauses)
    def pause(self, seconds: float, restart: bool, then: float) -> None:
        self._do(self.w.pause())
        self._go(seconds)
        self._do(self.w.resume(restart_windows=restart))
        self._go(then)

    # ---- the frame

    def teardown(self) -> None:
        world = self.world
        if world is None:
            return
        try:
            if self.whole:
                self._do(world.finish())
                self._count(world)
        finally:
            self.lasting.loop.run_until_complete(world.close())
            self._simulated.__exit__(None, None, None)

    @property
    def w(self) -> World:
        assert self.world is not None
        return self.world

    def _do(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self.lasting.loop.run_until_complete(work)
        except Stuck as stuck:
            self.whole = False
            self.w.judge.fail(Must.NOT_STUCK, None, str(stuck))
        except BaseException:
            self.whole = False
            raise

    def _go(self, seconds: float) -> None:
        self.w.steps += 1
        self._do(self.w.advance(seconds))

    def _pod(self, which: int) -> Pod | None:
        pods = list(self.w.cluster.pods.values())
        return pods[which % len(pods)] if pods else None

    def _agent(self, which: int) -> AgentProcess | None:
        agents = self.w.node.agents()
        return agents[which % len(agents)] if agents else None

    def _count(self, world: World) -> None:
        counts = self.counts
        if world.steps < LONG:
            counts.short += 1
            return
        counts.schedules += 1
        counts.steps += world.steps
        counts.crossed += world.judge.moves.crossed > 0
        counts.failed_rows += sum(one.state == "failed" for one in world.judge.rows.values())
        counts.executions += len(world.ground.notes.executions)
        counts.virtual_s += world.now
