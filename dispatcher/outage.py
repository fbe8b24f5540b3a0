"""Is the API *down*? In the rules' sense: every create since the last answered one was Unavailable, over at
least two rows. One poison row is no outage, and neither is an idle dispatcher.

Kept in the leader's memory on purpose: it decides nothing about a row (R8), it only informs people and holds
re-places back (R20).
"""

from dataclasses import dataclass, field
from datetime import datetime

from dispatcher.clock import Now
from dispatcher.rules import Disposition


@dataclass(slots=True)
class ApiHealth:
    """Fed with every outcome of a create; `Deferred` says nothing, since nothing was sent."""

    clock: Now | None = None
    lapses_after_s: float = float("inf")
    """An idle dispatcher knows of no outage: what it knew lapses when no create has failed for this long."""
    since: datetime | None = None
    """When the first of the present run of Unavailable outcomes failed."""
    cause: str | None = None
    _last: datetime | None = None
    _rows: set[int] = field(default_factory=set)

    def note(self, row_id: int, disposition: Disposition, cause: str, now: datetime) -> None:
        match disposition:
            case Disposition.DEFERRED:
                return
            case Disposition.UNAVAILABLE:
                if self._has_lapsed(now):
                    self._forget()
                self.since = self.since or now
                self._last = now
                self.cause = cause
                if len(self._rows) < 2:
                    self._rows.add(row_id)
            case Disposition.PLACED | Disposition.BACKPRESSURE | Disposition.REJECTED:
                self._forget()

    @property
    def down(self) -> bool:
        if self.clock is not None and self._has_lapsed(self.clock.now()):
            self._forget()
        return len(self._rows) >= 2

    def _has_lapsed(self, now: datetime) -> bool:
        return self._last is not None and (now - self._last).total_seconds() > self.lapses_after_s

    def _forget(self) -> None:
        self.since = self.cause = self._last = None
        self._rows.clear()
