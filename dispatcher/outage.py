"""Is the API *down*? In the rules' sense: every create since the last answered one was Unavailable, over at
least two rows. One poison row is no outage, and neither is an idle dispatcher.

Kept in the leader's memory on purpose: it decides nothing about a row (R8), it only informs people and holds
re-places back (R20).
"""

from dataclasses import dataclass, field
from datetime import datetime

from dispatcher.rules import Disposition


@dataclass(slots=True)
class ApiHealth:
    """Fed with every outcome of a create; `Deferred` says nothing, since nothing was sent."""

    since: datetime | None = None
    """When the first of the present run of Unavailable outcomes failed."""
    cause: str | None = None
    _rows: set[int] = field(default_factory=set)

    def note(self, row_id: int, disposition: Disposition, cause: str, now: datetime) -> None:
        match disposition:
            case Disposition.DEFERRED:
                return
            case Disposition.UNAVAILABLE:
                self.since = self.since or now
                self.cause = cause
                if len(self._rows) < 2:
                    self._rows.add(row_id)
            case Disposition.PLACED | Disposition.BACKPRESSURE | Disposition.REJECTED:
                self.since = self.cause = None
                self._rows.clear()

    @property
    def down(self) -> bool:
        return len(self._rows) >= 2
