"""Nobody looks at a placed pod that never reports: its row waits for ever (R20)."""

from dispatcher.reaper import Reaper
from tests.broken import Put


def apply(put: Put) -> None:
    async def nobody(self: Reaper) -> None: ...

    put(Reaper, "_re_place_silent_pods", nobody)
