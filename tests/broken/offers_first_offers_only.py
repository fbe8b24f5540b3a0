"""A claim that never looks at rows which are held: what was due in the outage waits for ever (R5, R18)."""

from dispatcher.rules import Rank
from dispatcher.store import claims
from tests.broken import Put


def apply(put: Put) -> None:
    put(claims, "Rank", (Rank.FIRST,))
