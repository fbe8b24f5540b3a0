"""Cases that people have reported, of outages, lists, leaders and databases, under their ids (`tests/cases`).

The answers to a single create are tested through the real client elsewhere; what is played here takes time, or more
than one party. All invariants are judged throughout.
"""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dispatcher.settings import Mode
from tests.simulation.agents import Plan
from tests.simulation.faults import UP, Mix
from tests.simulation.lasting import Lasting
from tests.simulation.process import Does, Point, Trap
from tests.simulation.run import play
from tests.simulation.world import World

SHORT, LONG = Plan(5.0), Plan(110.0)
CASES = {
    one["id"]: one for one in json.loads((Path(__file__).parent.parent / "cases/create_outcomes.json").read_text())
}
PLAYED: dict[str, list[tuple[Callable[[World], Awaitable[None]], int]]] = {}

Schedule = Callable[[World], Awaitable[None]]


def case(*ids: str, replicas: int = 1) -> Callable[[Schedule], Schedule]:
    def take(schedule: Schedule) -> Schedule:
        for one in ids:
            PLAYED.setdefault(one, []).append((schedule, replicas))
        return schedule

    return take


@case("C09")
async def webhook_hangs_for_seventeen_minutes(world: World) -> None:
    """The row that failed first fails at its window's end; one that came five minutes later outlives the outage."""
    world.api(Mix("hangs in the webhook", {"webhook down, quotes a denial": 1}))
    await world.submit([SHORT])
    await world.advance(300)
    await world.submit([SHORT])
    await world.advance(17 * 60 - 300)
    world.api(UP)
    await world.advance(120)
    assert states(world) == ["failed", "success"]
    assert 900 <= (world.judge.rows[1].ended_at or 0) <= 900 + 60 + 2 * 15


@case("C57")
async def throttled_and_down_by_turns(world: World) -> None:
    """503 and 429 by turns for twenty minutes: each 429 is an answer, so no window is ever over."""
    await world.submit([SHORT])
    for turn in range(120):
        world.api(Mix("turn", {"429" if turn % 2 else "503": 1}))
        await world.advance(10)
    row = world.judge.rows[1]
    assert (row.state, row.attempts) == ("scheduled", 0)
    met = {one.disposition for one in world.ground.notes.creations}
    assert met == {"unavailable", "backpressure"}


@case("C74")
async def twenty_five_minutes_of_refusals(world: World) -> None:
    """Fails at fifteen minutes; rows first offered at minute eleven survive; none fails earlier by another budget."""
    world.api("refused")
    await world.submit([SHORT])
    await world.advance(11 * 60)
    await world.submit([SHORT])
    await world.advance(14 * 60)
    world.api(UP)
    await world.advance(90)
    assert states(world) == ["failed", "success"]
    assert world.judge.rows[1].attempts == 0


@case("C75")
async def one_504_after_many_500s(world: World) -> None:
    await world.submit([SHORT])
    for name in ("etcd: leader changed", "webhook down", "etcd: leader changed", "504, stored late"):
        world.api(Mix(name, {name: 1}))
        row, offered = world.judge.rows[1], len(world.ground.notes.creations)
        await world.advance(row.next_offer_at - world.now + 1)
        assert len(world.ground.notes.creations) == offered + 1
        await world.advance(12)
    world.api(UP)
    await world.advance(120)
    assert states(world) == ["success"]
    assert world.judge.rows[1].attempts == 0
    assert len(world.ground.notes.executions) == 1


@case("C76", "C83")
async def stored_and_not_answered(world: World) -> None:
    """Pods of lost answers, some stored a minute after the client gave up: one runs, and the rest is cleaned up."""
    world.api("answers lost")
    await world.submit([SHORT] * 6)
    await world.advance(300)
    world.api(UP)
    await world.advance(900)
    assert set(states(world)) == {"success"}
    assert len(world.ground.notes.executions) == 6
    assert not world.cluster.pods, "stale pods go as soon as the API answers, finished ones after their time (R22)"


@case("C80")
async def catching_up_after_fourteen_minutes(world: World) -> None:
    """What has become due in fourteen minutes is offered within the minute after them, and ends."""
    world.api("503")
    for _ in range(14):
        await world.submit([SHORT, SHORT])
        await world.advance(60)
    world.api(UP)
    healed = world.now
    await world.advance(60)
    placed = [one for one in world.ground.notes.creations if one.called_at >= healed]
    assert {one.row for one in placed} == set(range(1, 29))
    assert all(one.disposition == "placed" for one in placed)


@case("C77")
async def failed_while_its_pod_lives(world: World) -> None:
    """A row fails at its window's end while a pod of an earlier lost answer waits for a node; then the pod starts."""
    world.node.full = True
    world.api(Mix("stored, reset", {"reset after": 1}))
    await world.submit([LONG])
    await world.until(lambda: bool(world.cluster.pods), "the pod of the lost answer")
    world.api("503")
    world.cluster.reads = "500"
    await world.until(lambda: world.judge.rows[1].state == "failed", "the window's end")
    epoch = world.judge.rows[1].epoch
    world.node.heal()
    await world.advance(60)
    assert not world.ground.notes.executions
    assert world.ground.notes.refused, "its agent asked, and was told to terminate"
    world.api(UP)
    await world.submit([SHORT])
    await world.advance(120)
    assert (world.judge.rows[1].state, world.judge.rows[1].epoch) == ("failed", epoch)
    assert not [one for one in world.cluster.pods.values() if one.row == 1], "and it was cleaned up"


@case("C78")
async def a_list_that_expires(world: World) -> None:
    """A paginated list ends in a 410: nothing is concluded; the next whole list shows the pod that vanished."""
    await silent_rows(world, 5)
    world.cluster.reads = "410"
    await world.advance(400)
    assert set(states(world)) == {"queued"}
    world.cluster.reads = "ok"
    await world.advance(30)
    assert states(world).count("scheduled") + states(world).count("queued") == 5
    assert [row.id for row in world.judge.rows.values() if row.infra_replaces] == [1]


@case("C79")
async def lists_that_prove_nothing(world: World) -> None:
    """A new leader meets lists that are throttled, refused, partial or cut: no row is reset."""
    await silent_rows(world, 4)
    world.kill(0, restart_in_s=1)
    for reads in ("429", "500", "partial", "cut", "status 200", "hangs", "refused"):
        world.cluster.reads = reads
        await world.advance(90)
    assert set(states(world)) == {"queued"}
    assert all(row.infra_replaces == 0 for row in world.judge.rows.values())


@case("C81", replicas=2)
async def a_leader_stops_for_forty_seconds(world: World) -> None:
    """Frozen with a create under way, between its claim and its request, and thawed when another has the row."""
    for point in (Point.BEFORE_POST, Point.BEFORE_ANSWER):
        await world.until(lambda: any(one.leads for one in world.replicas), "a leader")
        old = next(n for n, one in enumerate(world.replicas) if one.leads)
        (row,) = await world.submit([LONG], due_in_s=1.0)
        world.trap(old, Trap(point, Does.FREEZE))
        await world.advance(40)
        assert not world.replicas[old].leads
        world.thaw(old)
        await world.advance(300)
        assert world.judge.rows[row].state == "success"
        assert sum(one.row == row for one in world.ground.notes.executions) == 1


@case("C82")
async def placed_and_gone_in_a_second(world: World) -> None:
    """201, and the pod is gone: that is Placed; a complete list finds the absence after the five minutes."""
    world.node.full = True
    await world.submit([SHORT])
    await world.until(lambda: bool(world.cluster.pods), "the pod")
    world.lose(next(iter(world.cluster.pods.values())))
    await world.advance(299)
    assert states(world) == ["queued"]
    world.node.heal()
    await world.advance(120)
    row = world.judge.rows[1]
    assert (row.state, row.attempts) == ("success", 0)


@case("C85")
async def the_database_dies_between_201_and_the_write(world: World) -> None:
    """The settlement finds no database until its claim is dead; unless RUNNING wins, the row gets a new epoch."""
    world.node.full = True
    world.api("slow")
    await world.submit([SHORT])
    await world.until(lambda: bool(world.ground.notes.creations), "the create")
    world.cut_connections()
    world.database_down()
    await world.advance(60)
    world.database_up()
    world.api(UP)
    await world.advance(20)
    world.node.heal()
    await world.advance(200)
    assert states(world) == ["success"]
    assert len(world.ground.notes.executions) == 1
    assert len({one.epoch for one in world.ground.notes.creations}) == 2, "never adopted by its name"


@case("C85")
async def its_commit_was_lost(world: World) -> None:
    """The settlement commits and its answer is lost: it is written again, which changes nothing."""
    for does, point in ((Does.ERROR, Point.AFTER_COMMIT), (Does.ERROR, Point.BEFORE_COMMIT)):
        await world.until(lambda: world.replicas[0].leads, "a leader")
        (row,) = await world.submit([SHORT], due_in_s=0.5)
        await world.advance(0.2)
        world.trap(0, Trap(point, does, after=1))
        await world.advance(120)
        assert world.judge.rows[row].state == "success"


@case("C87", replicas=2)
async def leadership_is_lost_quietly(world: World) -> None:
    """The database goes away from the leader alone; another one leads, and the old one's late writes do no harm."""
    await world.until(lambda: any(one.leads for one in world.replicas), "a leader")
    old = next(n for n, one in enumerate(world.replicas) if one.leads)
    world.api("slow")
    await world.submit([LONG, LONG], due_in_s=0.5)
    world.cut_connections()
    world.trap(old, Trap(Point.BEFORE_TRANSACTION, Does.FREEZE, after=1))
    await world.advance(60)
    assert any(one.leads for n, one in enumerate(world.replicas) if n != old)
    world.thaw(old)
    await world.advance(300)
    assert set(states(world)) == {"success"}
    assert len(world.ground.notes.executions) == 2


@case("C88")
async def no_lock_is_held_while_a_create_hangs(world: World) -> None:
    """Creates hang for longer than an idle transaction is allowed; a clear gets at the row at once."""
    world.api("connect hangs")
    await world.submit([SHORT])
    await world.until(lambda: bool(world.ground.notes.creations), "the create")
    await world.advance(12)
    before = world.now
    await world.clear(1)
    assert world.now == before
    assert world.judge.rows[1].try_number == 2


def states(world: World) -> list[str]:
    return [row.state for row in world.judge.rows.values()]


async def silent_rows(world: World, count: int) -> None:
    """Placed rows whose pods wait for a node, and the first one's pod vanished; a leader that is steady."""
    await world.advance(120)
    world.node.full = True
    await world.submit([SHORT] * count)
    await world.until(lambda: len(world.cluster.pods) == count, "the pods")
    await world.advance(1)
    world.lose(world.cluster.pods["1-1-1"])


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("schedule", "replicas"),
    [
        pytest.param(schedule, replicas, id=f"{case_id} {schedule.__name__}")
        for case_id, schedules in sorted(PLAYED.items())
        for schedule, replicas in schedules
    ],
)
def test_a_reported_case(schedule: Schedule, replicas: int, mode: Mode, lasting: Lasting):
    play(lasting, schedule, mode=mode, replicas=replicas, slots=64)


def test_the_cases_are_in_the_file():
    assert set(CASES) >= set(PLAYED)
