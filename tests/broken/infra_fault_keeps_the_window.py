"""A re-place keeps the attempts of the episode before it (R8)."""

from dispatcher.store import recovery
from tests.broken import Put


def apply(put: Put) -> None:
    put(recovery, "NEW_EPISODE", {})
