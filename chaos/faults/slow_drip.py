"""Answers come a few bytes at a time: each read succeeds, and the whole never arrives in time."""

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Ground
from chaos.faults.toxic import ToxicFault


class SlowDrip(ToxicFault):
    """16 bytes every quarter of a second: a Pod of 3 KB takes 48 s. A timeout of single reads would wait for it; a
    total deadline (R1) does not. On connections that were open before, creates are committed all the same."""

    name = "slow-drip"
    kind, stream = "slicer", "downstream"
    attributes = {"average_size": 16, "size_variation": 0, "delay": 250_000}  # noqa: RUF012  (bytes, bytes, µs)

    async def confirm_fired(self, ground: Ground) -> Evidence:
        seen = await super().confirm_fired(ground)
        if "deadline" not in str(seen["cause"]):
            raise ChaosError(f"{self.name} did not fire: the probe was to wait in vain, and it saw {seen['cause']}")
        return seen
