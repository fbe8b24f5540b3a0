"""Answers come later than usual, and well before any deadline: no outage, and nothing may be taken for one."""

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Ground
from chaos.faults.toxic import ToxicFault

DELAY_S = 0.8
"""A new connection pays it twice (TLS, then the answer), which is less than the probe's deadline of 3 s."""


class Latency(ToxicFault):
    """Every answer is delayed by 0.8 s. Fired = the probe's creates are accepted in each lane's namespace, each as late
    as that; healed = sooner again."""

    name = "latency"
    kind, stream, attributes = "latency", "downstream", {"latency": int(DELAY_S * 1000), "jitter": 0}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        since = ground.now()
        accepted = await ground.probe.wait_accepted(since, 20)
        took = fastest(ground, since)
        if soonest := [f"{lane} after {taken:.2f} s" for lane, taken in took.items() if taken < 0.9 * DELAY_S]:
            raise ChaosError(f"{self.name} did not fire: a create was answered for {', '.join(soonest)}")
        return {"at": round(since, 6), "delay_s": DELAY_S, "took_s": took, "lanes": accepted}

    async def confirm_healed(self, ground: Ground, deadline_s: float) -> Evidence:
        end, since = ground.now() + deadline_s, self.healing_since
        while True:
            healed = await super().confirm_healed(ground, max(0.1, end - ground.now()))
            took = fastest(ground, since)
            if all(taken < 0.9 * DELAY_S for taken in took.values()):
                return {**healed, "took_s": took}
            if ground.now() > end:
                raise ChaosError(f"creates still take {took} s each, {deadline_s:g} s after the latency was taken off")
            self.healing_since = ground.now()


def fastest(ground: Ground, since: float) -> dict[str, float]:
    """By lane, the shortest time (s) that an accepted create of the probe took which was asked for since then."""
    took: dict[str, float] = {}
    for seen in ground.probe.seen:
        if seen.accepted and seen.started >= since:
            took[seen.lane] = round(min(seen.ended - seen.started, took.get(seen.lane, float("inf"))), 3)
    return took
