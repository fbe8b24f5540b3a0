"""The API puts tasks off: priority and fairness throttles the dispatcher just after an outage, then a quota is full."""

from chaos.scenarios.base import LaneSpec, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "While the API throttles the dispatcher, or the namespace's quota of pods is used up, no task fails: being put off "
    "spends no attempt and ends the window of an outage before it, and every task is offered until there is room. "
    "It is placed within a minute of that."
)


def throttle(profile: Profile) -> Scenario:
    """Connections are refused for some seconds, so that windows run when the throttle begins. A quota has room again
    when a controller of the cluster notices, on its own timers: it is used up in full only."""
    full = profile == "full"
    outage_s, hold_s, rate = (20.0, 60.0, 0.4) if full else (4.0, 8.0, 1.0)
    work_s = (1.0, 2.0) if full else (0.1, 0.3)
    # What is due together is offered together: only a herd meets a flow that serves one create at a time.
    herd = [Burst(16, within_s=0.2, after_s=at) for at in ((0.0, 24.0, 44.0) if full else (0.0, 6.0, 9.0))]
    load = [Segment("throttled", (*herd, Steady(rate, 200)), work_s), Segment("recovery", (Steady(rate, 180),), work_s)]
    if full:
        load += [Segment("quota", (*herd, Steady(rate, 200)), work_s), Segment("end", (Steady(rate, 180),), work_s)]
    throttled = Stroke(
        "proxy-off",
        hold_s=outage_s,
        load_fired="throttled",
        load_healed="recovery",
        recovery_s=60.0 if full else 10.0,
        stable_s=10.0 if full else 3.0,
        then=Stroke("throttle", hold_s=hold_s),
    )
    quota = Stroke("quota", hold_s=hold_s, load_fired="quota", load_healed="end", recovery_s=60.0, stable_s=10.0)
    return Scenario(
        name="throttle",
        profile=profile,
        claim=CLAIM,
        lanes=(LaneSpec("buffered", "buffered", replicas=2), LaneSpec("tick", "tick")),
        segments=(
            Segment("warm-up", (Burst(4, within_s=2.0), Steady(0.4 if full else 1.0, 180)), work_s),
            *load,
        ),
        strokes=(throttled, quota) if full else (throttled,),
        budgets={
            "recovery_s": 60.0 if full else 10.0,
            "outage_s": outage_s,
            "submitted": 120 if full else 60,
            "due_during": 16,
            "due_under_pressure": 20 if full else 16,
            "windows_cleared": 1,
        },
        warm_up_s=20.0 if full else 5.0,
        warm_up_placed=8,
        lead_s=1.0 if full else 0.3,
        drain_deadline_s=120.0 if full else 60.0,
        agents_in_process=not full,
        probe_interval_s=2.0 if full else 1.0,
        sample_interval_s=1.0 if full else 0.5,
        webhook_timeout_s=10 if full else 3,
    )
