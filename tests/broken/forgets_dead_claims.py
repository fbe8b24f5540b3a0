"""Nobody gives back what a dead dispatcher had claimed: its rows wait for ever (R20)."""

from dispatcher import store
from tests.broken import Put


def apply(put: Put) -> None:
    async def nobody(*_: object, **__: object) -> list[int]:
        return []

    put(store, "re_offer_dead_claims", nobody)
