"""A fail-closed webhook breaks for longer than six attempts can bear, is repaired, and then denies on purpose."""

from chaos.faults.webhook_denies import LABELS
from chaos.scenarios.base import THREE_LANES, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "While the fail-closed webhook cannot be called, no task fails, and every one is answered within a minute of its "
    "repair; what it denies on purpose is rejected and ends after the sixth attempt, and no other task suffers. "
    "The rule from before the decision, under the same outage, fails the tasks that were due at its start."
)


def webhook(profile: Profile) -> Scenario:
    """Full: 2 min unreachable, then 2 min slower than its timeout of 10 s; the denial outlasts the 2m35s of R6."""
    full = profile == "full"
    half_s, rate, denial_s = (115.0, 0.4, 165.0) if full else (12.0, 0.5, 18.0)
    # Only rows that are due in the first seconds can use up six attempts before the repair.
    opening = Burst(30, within_s=12.0) if full else Burst(24, within_s=1.2)
    denied = Burst(12, within_s=8.0 if full else 1.0, after_s=1.0, labels=LABELS, expect="rejected")
    work_s = (1.0, 2.0) if full else (0.1, 0.3)
    return Scenario(
        name="webhook",
        profile=profile,
        claim=CLAIM,
        lanes=THREE_LANES,
        segments=(
            Segment("warm-up", (Burst(4, within_s=2.0), Steady(0.4 if full else 1.0, 180)), work_s),
            Segment("outage", (opening, Steady(rate, 2 * half_s + 200)), work_s),
            Segment("recovery", (Steady(rate, 180),), work_s),
            Segment("denial", (denied, Steady(rate, denial_s + 90)), work_s),
        ),
        strokes=(
            Stroke(
                "webhook-down",
                hold_s=half_s,
                load_fired="outage",
                load_healed="recovery",
                recovery_s=60.0 if full else 10.0,
                stable_s=10.0 if full else 3.0,
                then=Stroke("webhook-slow", hold_s=half_s),
            ),
            Stroke(
                "webhook-denies",
                hold_s=denial_s,
                refused_within_s=60.0 if full else 30.0,
                load_fired="denial",
            ),
        ),
        budgets={
            "recovery_s": 60.0 if full else 10.0,
            "outage_s": 2 * half_s,
            "opening_s": 20.0 if full else 4.0,
            "opening_due": 20,
            "submitted": 150 if full else 60,
            "due_during": 100 if full else 30,
            "due_denied": 10,
            "due_bystanders": 30 if full else 8,
            "bystander_s": 15.0 if full else 8.0,
        },
        warm_up_s=25.0 if full else 5.0,
        warm_up_placed=8,
        lead_s=1.0 if full else 0.3,
        drain_deadline_s=60.0,
        agents_in_process=not full,
        probe_interval_s=2.0 if full else 1.0,
        sample_interval_s=1.0 if full else 0.5,
        webhook_timeout_s=10 if full else 3,
    )
