"""The leader is lost: killed in the middle of an outage, frozen past its lease and thawed, rolled over."""

from chaos.scenarios.base import BOTH_PATHS, PACE, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "Whether its leader is killed in the middle of an outage, frozen past its lease and thawed, or restarted in order, "
    "no task fails, none runs twice, and no window begins anew: its start lives on the row. "
    "What was due meanwhile is answered within a minute of the dispatcher's return, or the API's if that is later."
)


def leader_loss(profile: Profile) -> Scenario:
    """A lane with one replica has no dispatcher meanwhile; its tasks are handed in beforehand."""
    full, pace = profile == "full", PACE[profile]
    dead_s, rate = (30.0, 0.5) if full else (7.0, 1.5)
    return Scenario(
        name="leader-loss",
        claim=CLAIM,
        lanes=BOTH_PATHS,
        segments=(
            pace.warm_up,
            Segment("outage", (Burst(12, within_s=3.0), Steady(rate, 300)), pace.work_s),
            Segment("frozen", (Burst(12, within_s=10.0), Steady(rate, 300)), pace.work_s),
            Segment("rolled", (Burst(12, within_s=10.0), Steady(rate, 300)), pace.work_s),
        ),
        strokes=(
            Stroke(
                "proxy-off",
                hold_s=30.0 if full else 5.0,
                load_fired="outage",
                meanwhile=(Stroke("dispatcher-kill-leader", hold_s=dead_s),),
                **pace.after,
            ),
            Stroke("dispatcher-freeze-leader", 10.0 if full else 2.0, load_before="frozen", before_s=2.0, **pace.after),
            Stroke("dispatcher-rolling-restart", hold_s=0.0, load_before="rolled", before_s=2.0, **pace.after),
        ),
        budgets={"recovery_s": pace.recovery_s, "submitted": 60, "due_during": 15, "due_away": 5},
        lead_s=60.0 if full else 12.0,
        **pace.common,
    )
