"""Small schedules, each with the trouble that one kind of wrong dispatcher gets wrong."""

from tests.simulation.agents import Plan
from tests.simulation.faults import Mix
from tests.simulation.ground import Creation
from tests.simulation.process import Does, Point, Trap
from tests.simulation.world import World

SHORT, LONG = Plan(5.0), Plan(110.0)


async def outage(world: World) -> None:
    """Three minutes without an API."""
    world.api("503")
    await world.submit([SHORT, SHORT])
    await world.advance(180)


async def webhook_outage(world: World) -> None:
    """Three minutes with a webhook that cannot be reached."""
    world.api("webhook")
    await world.submit([SHORT])
    await world.advance(180)


async def answers_lost(world: World) -> None:
    """Every create is committed, and no answer comes; pods start after the re-offer."""
    world.api(Mix("reset after", {"reset after": 1}))
    await world.submit([SHORT, SHORT, SHORT])
    await world.advance(120)


async def rejections(world: World) -> None:
    """Every task is refused, in words that remind of an outage."""
    world.api(Mix("422", {"422": 1}))
    await world.submit([SHORT], retries=2)
    await world.advance(400)


async def long_outage(world: World) -> None:
    """Longer than the window; the tasks have retries."""
    world.api("503")
    await world.submit([SHORT], retries=2)
    await world.advance(1100)


async def hanging_at_the_windows_end(world: World) -> None:
    """An outage in which creates hang; an operator's pause moves one to ten seconds before the window's end."""
    world.api("connect hangs")
    await world.submit([SHORT])
    await world.until(lambda: world.judge.rows[1].since is not None, "the first failure")
    await world.advance(840)
    await world.pause()
    await world.advance(50)
    await world.resume()
    await world.advance(100)


async def restarts(world: World) -> None:
    """An outage, and a dispatcher that is restarted in the midst of it."""
    world.api("503")
    await world.submit([SHORT])
    await world.advance(100)
    world.kill(0, restart_in_s=2)
    await world.advance(200)


async def busy_limiter(world: World) -> None:
    """An outage, and a client limiter that refuses once."""
    world.api("503")
    await world.submit([SHORT])
    await world.advance(30)
    world.replicas[0].limiter.refusals = 1
    await world.advance(100)


async def stale_replica(world: World) -> None:
    """The leader is frozen with a create under way; its successor has the row when it runs on (C81)."""
    await world.until(lambda: world.replicas[0].leads or world.replicas[1].leads, "a leader")
    old = 0 if world.replicas[0].leads else 1
    world.node.full = True
    world.trap(old, Trap(Point.BEFORE_ANSWER, Does.FREEZE))
    await world.submit([SHORT])
    await world.advance(5)
    world.api("connect hangs")
    await world.until(lambda: any(one.process.startswith(f"r{2 - old}") for one in creates(world)), "its successor")
    world.thaw(old)
    await world.advance(60)


async def frozen_leader(world: World) -> None:
    """The leader is frozen for a while: another one leads once its lease is over, and not before."""
    await world.until(lambda: world.replicas[0].leads or world.replicas[1].leads, "a leader")
    old = 0 if world.replicas[0].leads else 1
    world.freeze(old)
    await world.submit([SHORT])
    await world.advance(60)
    world.thaw(old)
    await world.advance(30)


async def killed_after_the_claim(world: World) -> None:
    """The dispatcher dies between its claim and its create; the next one starts at once."""
    await world.until(lambda: world.replicas[0].leads, "a leader")
    world.trap(0, Trap(Point.AFTER_CLAIM, Does.KILL))
    await world.submit([SHORT])
    await world.advance(2)
    world.start_dead()
    await world.advance(120)


async def database_away_while_agents_ask(world: World) -> None:
    """The database goes after the pod was placed, and before its agent reports."""
    await world.submit([SHORT])
    await world.until(lambda: world.judge.rows[1].pod_uid is not None, "the placed pod")
    world.database_down()
    await world.advance(30)
    world.database_up()
    await world.advance(60)


async def partition(world: World) -> None:
    """An agent that runs is cut off from every replica for longer than its lease."""
    await world.submit([Plan(400.0)])
    await world.until(lambda: world.judge.rows[1].state == "running", "the running row")
    await world.advance(100)  # R20: nothing is re-placed within one lease of the leader's start
    world.partition(pod_uid="1-1-1")
    await world.advance(200)
    world.heal_network()
    await world.advance(60)


async def long_tasks(world: World) -> None:
    """Nothing is wrong, and tasks run for a while."""
    await world.advance(100)
    await world.submit([LONG, LONG])
    await world.advance(200)


async def long_task_then_no_node(world: World) -> None:
    """Nothing is wrong, but that no other pod would find a node while the task runs."""
    await world.advance(100)
    await world.submit([LONG])
    await world.until(lambda: world.judge.rows[1].state == "running", "the running row")
    world.node.full = True
    await world.advance(60)
    world.node.heal()
    await world.advance(60)


async def reschedules(world: World) -> None:
    await world.submit([Plan(5.0, ("reschedule", "reschedule", "success"))], retries=1)
    await world.advance(60)


async def lists_fail(world: World) -> None:
    """Pods wait for a node for longer than they are given to report, and no list comes."""
    world.node.full = True
    await world.submit([SHORT])
    await world.advance(10)
    world.cluster.reads = "500"
    await world.advance(500)


async def broken_image(world: World) -> None:
    """Pods are bound and never start."""
    world.node.image_broken = True
    await world.submit([SHORT])
    await world.advance(3600)


async def pod_vanishes(world: World) -> None:
    """A pod is removed before its agent could report."""
    world.node.full = True
    await world.submit([SHORT])
    await world.until(lambda: bool(world.cluster.pods), "the pod")
    world.lose(next(iter(world.cluster.pods.values())))
    await world.advance(400)


async def clear_while_running(world: World) -> None:
    await world.submit([LONG])
    await world.until(lambda: world.judge.rows[1].state == "running", "the running row")
    await world.clear(1)
    await world.advance(30)


async def ten_minutes_out(world: World) -> None:
    """Longer than an orphaned run is given."""
    world.api("503")
    await world.submit([SHORT])
    await world.advance(600)


async def rejected_then_vanished(world: World) -> None:
    """A row with spent attempts is placed, and its pod vanishes: a new episode."""
    world.api(Mix("403", {"403": 1}))
    await world.submit([SHORT])
    await world.advance(8)
    world.node.full = True
    world.api("up")
    await world.until(lambda: bool(world.cluster.pods), "the pod")
    world.lose(next(iter(world.cluster.pods.values())))
    await world.advance(400)


async def slow_api(world: World) -> None:
    world.api("slow")
    await world.submit([SHORT, SHORT])
    await world.advance(60)


async def wall_clock_is_set(world: World) -> None:
    """Somebody sets the dispatcher's wall clock forward by hours, just before an agent's heartbeat."""
    await world.submit([LONG])
    await world.until(lambda: world.judge.rows[1].state == "running", "the running row")
    for _ in range(4):
        renewed_at = (world.judge.rows[1].lease_until or 0.0) - 90
        await world.advance(renewed_at + 19.9 - world.now)
        world.step_wall_clocks(7200)
        await world.advance(5)


def creates(world: World) -> list[Creation]:
    return list(world.ground.notes.creations)
