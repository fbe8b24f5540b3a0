"""The dispatcher dies at every point of its main path where it holds something: a claim, an answer, half a write."""

from chaos.faults.dispatcher_kill_at_seam import SEAMS
from chaos.scenarios.base import BOTH_PATHS, PACE, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "Wherever a dispatcher is killed between the claim of a row and the end of its settlement, on either path, each "
    "row ends right and runs once: the claim dies, the row is offered again under a new epoch, a pod of the old one "
    "is refused. What was due meanwhile is answered within a minute of the dispatcher's return."
)
IN_RE_OFFER = "in-re-offer"
"""Only an offer that did not succeed is offered again, so this one is reached while connections are refused."""


def crash_points(profile: Profile) -> Scenario:
    """Each seam in turn, in both lanes at once. Tasks are handed in beforehand: while the lane's dispatchers are down
    nobody takes one."""
    full, pace = profile == "full", PACE[profile]
    dead_s, rate = (10.0, 0.5) if full else (2.0, 0.8)
    others = [seam for seam in SEAMS if seam != IN_RE_OFFER]

    def due(name: str) -> Segment:
        return Segment(name, (Burst(8, within_s=10.0), Steady(rate, 300)), pace.work_s)

    def kill(seam: str) -> Stroke:
        return Stroke(f"dispatcher-kill-{seam}", dead_s, load_before=seam, before_s=1.0, **pace.after)

    refused = Stroke(
        "proxy-off",
        hold_s=1.0,
        load_fired=IN_RE_OFFER,
        meanwhile=(Stroke(f"dispatcher-kill-{IN_RE_OFFER}", dead_s),),
        **pace.after,
    )
    return Scenario(
        name="crash-points",
        claim=CLAIM,
        lanes=BOTH_PATHS,
        segments=(pace.warm_up, *map(due, SEAMS)),
        strokes=(*map(kill, others), refused),
        budgets={
            "recovery_s": pace.recovery_s,
            "submitted": 80,
            "due_during": 6,
            "due_away": 3,
        },
        lead_s=60.0 if full else 15.0,
        **pace.common,
    )
