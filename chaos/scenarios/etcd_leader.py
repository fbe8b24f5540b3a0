"""The one etcd member there is stops, is killed, and is away while the apiserver starts."""

from chaos.scenarios.base import PACE, THREE_LANES, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "While etcd hangs, is dead, or is away as the apiserver starts, no task fails, though creates hang to their "
    "deadline, or come back as a 500 without a reason. "
    "Every due task is answered within a minute of the first create that is accepted, long after etcd is back or not."
)


def etcd_leader(profile: Profile) -> Scenario:
    """A pause and a kill of the one member until there are three of them to lose a leader."""
    full, pace = profile == "full", PACE[profile]
    hold_s, rate = (60.0, 0.5) if full else (8.0, 1.5)
    faults = ("etcd-pause", "etcd-kill", "apiserver-without-etcd")
    return Scenario(
        name="etcd-leader",
        claim=CLAIM,
        lanes=THREE_LANES,
        segments=(
            pace.warm_up,
            *(Segment(name, (Burst(10, within_s=5.0), Steady(rate, 600)), pace.work_s) for name in faults),
        ),
        strokes=tuple(Stroke(name, hold_s=hold_s, load_before=name, before_s=1.0, **pace.after) for name in faults),
        budgets={"recovery_s": pace.recovery_s, "submitted": 90, "due_during": 20, "due_after": 3},
        only_full="after an etcd outage the apiserver redials on a timer of its own, of up to 2 min",
        **pace.common,
    )
