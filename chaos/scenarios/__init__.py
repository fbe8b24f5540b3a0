"""The scenarios by name; a new one is one file and one line here."""

from collections.abc import Callable

from chaos.errors import UsageError
from chaos.scenarios.base import PROFILES, LaneSpec, Profile, Scenario, Stroke
from chaos.scenarios.crash_points import crash_points
from chaos.scenarios.cut import cut
from chaos.scenarios.database_restart import database_restart
from chaos.scenarios.etcd_leader import etcd_leader
from chaos.scenarios.flap import flap
from chaos.scenarios.leader_loss import leader_loss
from chaos.scenarios.load_balancer import load_balancer
from chaos.scenarios.lost_response import lost_response
from chaos.scenarios.partition import partition
from chaos.scenarios.throttle import throttle
from chaos.scenarios.upgrade import upgrade
from chaos.scenarios.webhook import webhook
from chaos.scenarios.window_expiry import window_expiry

SCENARIOS: dict[str, Callable[[Profile], Scenario]] = {
    "upgrade": upgrade,
    "webhook": webhook,
    "cut": cut,
    "lost-response": lost_response,
    "flap": flap,
    "leader-loss": leader_loss,
    "etcd-leader": etcd_leader,
    "load-balancer": load_balancer,
    "throttle": throttle,
    "crash-points": crash_points,
    "window-expiry": window_expiry,
    "partition": partition,
    "database-restart": database_restart,
}

ALL = "all"
"""Not one of them: every scenario that the profile can run, one after the other on one testbed."""

__all__ = ["ALL", "PROFILES", "SCENARIOS", "LaneSpec", "Profile", "Scenario", "Stroke", "find"]


def find(name: str, profile: Profile) -> Scenario:
    """A scenario by its name. Raises UsageError with the names there are."""
    if name not in SCENARIOS:
        raise UsageError(f"no scenario {name!r}; there are: {', '.join(sorted(SCENARIOS))}, and {ALL}")
    return SCENARIOS[name](profile)
