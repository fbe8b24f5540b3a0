"""The apiserver comes and goes: a crash loop that lets some creates through, then one restart in order."""

from chaos.scenarios.base import PACE, THREE_LANES, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "While the apiserver crashes again and again, up for a second between two crashes, no task fails: what gets "
    "through is placed once, what does not is held. "
    "After the last crash, and after a restart in order, every waiting task is answered within a minute."
)


def flap(profile: Profile) -> Scenario:
    """A crash loop of a minute in full; each round takes as long as an apiserver needs to start, some 4 s."""
    full, pace = profile == "full", PACE[profile]
    hold_s, rate = (60.0, 0.7) if full else (12.0, 2.0)
    return Scenario(
        name="flap",
        claim=CLAIM,
        lanes=THREE_LANES,
        segments=(
            pace.warm_up,
            Segment("crashes", (Burst(12, within_s=6.0), Steady(rate, 400)), pace.work_s),
            Segment("restart", (Burst(12, within_s=8.0), Steady(rate, 300)), pace.work_s),
        ),
        strokes=(
            Stroke("apiserver-crash-loop", hold_s=hold_s, load_before="crashes", **pace.after),
            Stroke("apiserver-restart", hold_s=0.0, load_before="restart", **pace.after),
        ),
        budgets={"recovery_s": pace.recovery_s, "submitted": 60, "due_during": 3},
        **pace.common,
    )
