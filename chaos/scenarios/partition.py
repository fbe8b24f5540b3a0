"""Agents are cut off from every dispatcher for longer than their lease; later, agents that run are killed."""

from chaos.scenarios.base import BOTH_PATHS, PACE, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "An agent that is cut off for longer than its lease has ended its user code before the lease is over, and only "
    "then is the task placed again: two executions of a task never overlap, whatever is cut. "
    "A task whose agent was cut off or killed runs again and ends as it should; no other task runs twice."
)


def partition(profile: Profile) -> Scenario:
    """The partition outlasts the lease (90 s, quick 30 s), and so does some of the work that runs when it begins."""
    full, pace = profile == "full", PACE[profile]
    hold_s, rate = (120.0, 0.4) if full else (42.0, 1.0)
    long = (5.0, 110.0) if full else (3.0, 36.0)
    return Scenario(
        name="partition",
        claim=CLAIM,
        lanes=BOTH_PATHS,
        segments=(
            pace.warm_up,
            Segment("cut-off", (Burst(14, within_s=2.0), Steady(rate / 4, hold_s)), long),
            Segment("killed", (Burst(8, within_s=1.0),), (8.0, 12.0)),
            Segment("after", (Steady(rate, 200),), pace.work_s),
        ),
        strokes=(
            Stroke("partition", hold_s, load_before="cut-off", before_s=6.0, recovery_s=30.0, stable_s=12.0),
            Stroke(
                "agent-kill",
                hold_s=0.0,
                load_before="killed",
                before_s=5.0,
                load_healed="after",
                recovery_s=15.0,
                stable_s=12.0,
            ),
        ),
        budgets={"recovery_s": pace.recovery_s, "submitted": 40, "running_when_hit": 3},
        **{**pace.common, "drain_deadline_s": 400.0 if full else 150.0},
    )
