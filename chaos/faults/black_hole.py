"""Nothing that a client sends arrives: connections open, and no answer ever comes."""

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Ground
from chaos.faults.toxic import ToxicFault


class BlackHole(ToxicFault):
    """As behind a firewall that drops: only the client's own deadline ends a create, and nothing was committed."""

    name = "black-hole"
    kind, stream, attributes = "timeout", "upstream", {"timeout": 0}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        seen = await super().confirm_fired(ground)
        if "deadline" not in str(seen["cause"]):
            raise ChaosError(f"{self.name} did not fire: the probe was to wait in vain, and it saw {seen['cause']}")
        return seen
