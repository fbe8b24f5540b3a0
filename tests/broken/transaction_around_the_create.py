"""The row is locked while its create is under way: one slow API call holds a connection and a lock (R10)."""

from dispatcher.dispatch import Offers
from dispatcher.store import Claim
from tests.broken import Put


def apply(put: Put) -> None:
    right = Offers.offer

    async def offer(self: Offers, claim: Claim) -> None:
        async with self._engine.begin():
            await right(self, claim)

    put(Offers, "offer", offer)
