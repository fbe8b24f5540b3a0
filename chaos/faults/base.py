"""The contract of a fault: five small steps, each of which can fail and says so.

`available` before anything starts, `inject`, `confirm_fired` (an independent client saw it), `heal` within a
deadline, `confirm_healed` (an independent client was served again). A step that cannot show what it claims raises
`ChaosError`; the run is then unknown, never passed. `undo` says beforehand how to put things right, in steps that
another process can replay from disk (`chaos heal`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chaos.errors import ChaosError

if TYPE_CHECKING:
    from chaos.lanes import Lane
    from chaos.probe import Probe
    from chaos.testbed import Testbed

Evidence = dict[str, Any]
"""What a step saw, in JSON. `at` (run-clock seconds) is when it came true, if that was before the step's end."""

UndoStep = dict[str, Any]
"""{"do": "start", "process", "argv", "env", "log", "pid_file"}, {"do": "enable", "control", "proxy"},
{"do": "remove-toxic", "control", "proxy", "toxic"}, {"do": "continue", "process", "pid_file"} (SIGCONT),
{"do": "call", "method", "url", "body", "tls", "done"} or {"do": "remove-file", "file", "done"}. `done` is what a person
is told then."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a fault works on. `now` is the run clock in seconds; `started_wall` its zero as unix seconds; `lanes`
    are the dispatchers, for faults that are aimed at them."""

    bed: "Testbed"
    probe: "Probe"
    now: Callable[[], float]
    started_wall: float
    lanes: "Mapping[str, Lane]" = field(default_factory=dict)


class Fault(ABC):
    """One way to break things. An instance is used for one injection."""

    name: str
    heal_deadline_s: float = 150.0
    """After a long etcd outage an apiserver that lived through it redials with a backoff of up to 2 min.
    Not scaled in the quick profile: it hangs on a server's own timer."""

    def available(self, ground: Ground) -> str | None:
        """None if it can be injected here, else why not, in words for a person."""
        return None

    @abstractmethod
    def undo(self, ground: Ground) -> list[UndoStep]:
        """What puts things right again, were the suite to die now."""

    @abstractmethod
    async def inject(self, ground: Ground) -> Evidence:
        """Break it."""

    @abstractmethod
    async def confirm_fired(self, ground: Ground) -> Evidence:
        """Show that it broke, by what a client saw. Raises ChaosError where that cannot be shown."""

    @abstractmethod
    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        """Put it right, whatever `inject` got done. Safe to call twice."""

    async def confirm_healed(self, ground: Ground, deadline_s: float) -> Evidence:
        """The first accepted real create by the probe in each lane's namespace, through the same proxy and webhook."""
        lanes = await ground.probe.wait_accepted(self.healing_since, deadline_s)
        return {"at": round(max(lanes.values()), 6), "lanes": {lane: round(at, 6) for lane, at in lanes.items()}}

    healing_since: float = 0.0
    """When `heal` began, on the run clock: creates that were asked for earlier prove nothing."""


async def refused(ground: Ground, since: float, deadline_s: float) -> Evidence:
    """Evidence that the probe, no part of the dispatcher, was not served: when, on which connection, and why."""
    seen = await ground.probe.wait_refused(since, deadline_s)
    return {"at": round(seen.ended, 6), "cause": seen.cause, "connection": seen.connection, "lane": seen.lane}


async def or_restart(ground: Ground, heal: Callable[[], None]) -> bool:
    """Heal a proxy by its control API; where that hangs or fails, restart the proxy. Returns whether it came to that.

    Removing a toxic under traffic can hang Toxiproxy, and a heal must not depend on it.
    """
    try:
        await asyncio.to_thread(heal)
    except ChaosError:
        await ground.bed.proxies.restart()
        return True
    return False
