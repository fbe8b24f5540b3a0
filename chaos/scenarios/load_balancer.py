"""A load balancer before the API answers with pages instead: 502, 503, 504, none of them a word of the apiserver's."""

from chaos.scenarios.base import LaneSpec, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "While a load balancer answers 502 with nothing in it, 503 with a maintenance page and 504 for an upstream that "
    "hangs, no task fails: a page is no answer of the API's. "
    "Every due task is answered within a minute of the API's first accepted create, each running once."
)


def load_balancer(profile: Profile) -> Scenario:
    """Three minutes in full, one kind of page after the other without a gap. Its timeout is shorter than a create's
    deadline, so that the 504 is seen."""
    full = profile == "full"
    each_s, rate = (60.0, 0.4) if full else (6.0, 1.0)
    work_s = (1.0, 2.0) if full else (0.1, 0.3)
    return Scenario(
        name="load-balancer",
        profile=profile,
        claim=CLAIM,
        lanes=(LaneSpec("buffered", "buffered", replicas=2), LaneSpec("tick", "tick")),
        segments=(
            Segment("warm-up", (Burst(4, within_s=2.0), Steady(0.4 if full else 1.0, 180)), work_s),
            Segment("outage", (Burst(10, within_s=5.0 if full else 1.0), Steady(rate, 3 * each_s + 150)), work_s),
            Segment("recovery", (Steady(rate, 180),), work_s),
        ),
        strokes=(
            Stroke(
                "load-balancer-502",
                hold_s=each_s,
                load_fired="outage",
                load_healed="recovery",
                recovery_s=60.0 if full else 10.0,
                stable_s=10.0 if full else 3.0,
                then=Stroke("load-balancer-503-page", hold_s=each_s, then=Stroke("load-balancer-504", hold_s=each_s)),
            ),
        ),
        budgets={
            "recovery_s": 60.0 if full else 10.0,
            "outage_s": 3 * each_s,
            "submitted": 80 if full else 40,
            "due_during": 60 if full else 20,
        },
        warm_up_s=20.0 if full else 5.0,
        warm_up_placed=8,
        lead_s=1.0 if full else 0.3,
        drain_deadline_s=60.0,
        agents_in_process=not full,
        probe_interval_s=2.0 if full else 1.0,
        sample_interval_s=1.0 if full else 0.5,
        webhook_timeout_s=10 if full else 3,
        load_balancer_timeout_s=10.0 if full else 4.0,
    )
