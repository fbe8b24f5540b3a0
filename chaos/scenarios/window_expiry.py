"""The API stays away for longer than the window: what was due at its start fails, in time and in words, no other."""

from chaos.scenarios.base import PACE, THREE_LANES, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "A task that the API is unavailable to for longer than the window fails then, no earlier and hardly later, without "
    "having run, and its reason names the time and the cause; its retries are not billed. "
    "A task whose window has not passed when the API returns is placed, in the same outage."
)


def window_expiry(profile: Profile) -> Scenario:
    """Full: 17.5 min against a window of 15 min. Quick: 2 min against 90 s. Between those that must fail and those that
    must not, some are due whose window may end on either side of the return."""
    full, pace = profile == "full", PACE[profile]
    window_s, hold_s, gap_s = (900.0, 1050.0, 300.0) if full else (90.0, 118.0, 50.0)
    tenth = 10.0 if full else 1.0
    outage = (
        Burst(16, within_s=3.0 * tenth, expect="dispatch_failed"),
        Burst(6, within_s=20.0 * tenth, after_s=12.0 * tenth, expect="any"),
        Burst(24, within_s=hold_s - gap_s, after_s=gap_s),
    )
    return Scenario(
        name="window-expiry",
        claim=CLAIM,
        lanes=THREE_LANES,
        segments=(
            pace.warm_up,
            Segment("quiet", ()),  # what is due while the apiserver drains belongs to neither side
            Segment("outage", outage, pace.work_s),
            Segment("recovery", (Steady(0.5 if full else 2.0, 180),), pace.work_s),
        ),
        strokes=(
            Stroke(
                "apiserver-long-stop",
                hold_s=hold_s,
                load_before="quiet",
                before_s=3.0,
                load_fired="outage",
                load_healed="recovery",
                recovery_s=pace.recovery_s,
                stable_s=pace.stable_s,
            ),
        ),
        budgets={
            "recovery_s": pace.recovery_s,
            "outage_s": hold_s,
            "window_s": window_s,
            "expired": 16,
            "submitted": 50,
            "due_during": 40,
        },
        **pace.common,
    )
