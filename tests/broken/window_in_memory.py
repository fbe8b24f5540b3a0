"""The outage start lives in the process: each restart and each change of leader begins every window anew (R8)."""

from dataclasses import replace
from datetime import datetime
from weakref import WeakKeyDictionary

from dispatcher.dispatch import Offers
from dispatcher.rules import Outcome, ReOffer, decide
from dispatcher.store import Claim
from tests.broken import Put


def apply(put: Put) -> None:
    memory: WeakKeyDictionary[Offers, dict[int, datetime | None]] = WeakKeyDictionary()
    right = Offers._settle

    async def _settle(self: Offers, claim: Claim, outcome: Outcome) -> None:
        starts = memory.setdefault(self, {})
        claim = replace(claim, row=replace(claim.row, dispatch_unavailable_since=starts.get(claim.id)))
        decision = decide(claim.row, outcome, self._policy)
        starts[claim.id] = decision.dispatch_unavailable_since if isinstance(decision, ReOffer) else None
        await right(self, claim, outcome)

    put(Offers, "_settle", _settle)
