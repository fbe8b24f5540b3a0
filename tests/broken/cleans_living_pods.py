"""Clean-up takes every pod for a stale one (R22)."""

from dispatcher import podgc
from tests.broken import Put


def apply(put: Put) -> None:
    put(podgc, "is_stale", lambda pod, owner: True)
