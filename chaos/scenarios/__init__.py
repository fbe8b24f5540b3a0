"""The scenarios by name; a new one is one file and one line here."""

from collections.abc import Callable

from chaos.errors import UsageError
from chaos.scenarios.base import PROFILES, LaneSpec, Profile, Scenario, Stroke
from chaos.scenarios.load_balancer import load_balancer
from chaos.scenarios.throttle import throttle
from chaos.scenarios.upgrade import upgrade
from chaos.scenarios.webhook import webhook

SCENARIOS: dict[str, Callable[[Profile], Scenario]] = {
    "upgrade": upgrade,
    "load-balancer": load_balancer,
    "throttle": throttle,
    "webhook": webhook,
}

__all__ = ["PROFILES", "SCENARIOS", "LaneSpec", "Profile", "Scenario", "Stroke", "find"]


def find(name: str, profile: Profile) -> Scenario:
    """A scenario by its name. Raises UsageError with the names there are."""
    if name not in SCENARIOS:
        raise UsageError(f"no scenario {name!r}; there are: {', '.join(sorted(SCENARIOS))}")
    return SCENARIOS[name](profile)
