"""Everything that can happen to connections: refused, reset, swallowed, dripping, late, cut in the middle."""

from chaos.scenarios.base import PACE, THREE_LANES, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "Whatever happens to its connections (refused, reset, swallowed, answered drop by drop, cut in the middle), no "
    "task fails, every one is answered within a minute, and none runs twice. "
    "Answers that are only late cost nothing at all."
)


def cut(profile: Profile) -> Scenario:
    """Four kinds of outage without a gap, the longer ones longer than a create's deadline; then connections that are
    cut every 2 s while answers take 0.8 s, so that some creates are always under way."""
    full, pace = profile == "full", PACE[profile]
    short_s, long_s, cuts_s, rate = (30.0, 50.0, 40.0, 0.5) if full else (5.0, 8.0, 9.0, 1.5)
    drip = Stroke("slow-drip", hold_s=long_s)
    swallowed = Stroke("black-hole", hold_s=long_s, then=drip)
    return Scenario(
        name="cut",
        claim=CLAIM,
        lanes=THREE_LANES,
        segments=(
            pace.warm_up,
            Segment("outage", (Burst(10, within_s=1.0), Steady(rate, 400)), pace.work_s),
            Segment("late", (Steady(4.0, 120),), pace.work_s),
        ),
        strokes=(
            Stroke(
                "proxy-off",
                hold_s=short_s,
                load_fired="outage",
                then=Stroke("connections-reset", hold_s=short_s, then=swallowed),
                **pace.after,
            ),
            Stroke(
                "latency",
                hold_s=4.0,
                load_before="late",
                before_s=2.0,
                meanwhile=(Stroke("connections-cut", hold_s=cuts_s),),
                **pace.after,
            ),
        ),
        budgets={
            "recovery_s": pace.recovery_s,
            "submitted": 100,
            "due_during": 40,
            "due_answer_lost": 16,
        },
        **pace.common,
    )
