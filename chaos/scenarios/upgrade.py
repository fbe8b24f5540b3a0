"""A control-plane upgrade: everything stops in order and stays down for longer than six attempts can bear."""

from chaos.scenarios.base import THREE_LANES, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "While the whole control plane is down for longer than the old budget of six attempts, no due task fails, and "
    "every one is offered again and answered within a minute of the API's first accepted create, each running once. "
    "The rule from before the decision, under the same outage, fails the tasks that were due at its start."
)
WARM_S = 3.0
"""Between the answer-lost phase's first burst, which opens the connections, and the toxic."""


def upgrade(profile: Profile) -> Scenario:
    """Full: 4 min of outage against 2m35s of attempts. Quick: 24 s against 15.5 s, agents in one process."""
    full = profile == "full"
    outage_s, rate = (240.0, 0.4) if full else (24.0, 1.0)
    # Only rows that are due in the first seconds can use up six attempts before the return.
    opening = Burst(30, within_s=12.0) if full else Burst(24, within_s=1.2)
    work_s = (1.0, 2.0) if full else (0.1, 0.3)
    return Scenario(
        name="upgrade",
        profile=profile,
        claim=CLAIM,
        lanes=THREE_LANES,
        segments=(
            Segment("warm-up", (Burst(4, within_s=2.0), Steady(0.4 if full else 2.0, 180)), work_s),
            Segment("outage", (opening, Steady(rate, outage_s + 200)), work_s),
            Segment("recovery", (Steady(rate, 180),), work_s),
            Segment("answer-lost", (Burst(16, within_s=0.2, after_s=1.5), Burst(16, 1.5, 1.5 + WARM_S + 0.5)), work_s),
        ),
        strokes=(
            Stroke(
                "control-plane-stop",
                hold_s=outage_s,
                load_fired="outage",
                load_healed="recovery",
                recovery_s=60.0 if full else 10.0,
                stable_s=15.0 if full else 3.0,
            ),
            Stroke(
                "answer-lost",
                hold_s=8.0 if full else 3.0,
                load_before="answer-lost",
                before_s=1.5 + WARM_S,
                phase="answer-lost",
            ),
        ),
        budgets={
            "recovery_s": 60.0 if full else 10.0,
            "outage_s": outage_s,
            "opening_s": 20.0 if full else 2.0,
            "opening_due": 20,
            "submitted": 120 if full else 50,
            "due_during": 100 if full else 40,
        },
        warm_up_s=25.0 if full else 5.0,
        warm_up_placed=10,
        lead_s=1.0 if full else 0.3,
        drain_deadline_s=120.0 if full else 60.0,
        agents_in_process=not full,
        probe_interval_s=2.0 if full else 1.0,
        sample_interval_s=1.0 if full else 0.5,
        webhook_timeout_s=10 if full else 3,
    )
