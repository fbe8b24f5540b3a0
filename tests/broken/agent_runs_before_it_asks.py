"""An agent starts its user code while it asks whether it may (R11)."""

from dispatcher import agent
from tests.broken import Put


def apply(put: Put) -> None:
    right = agent.Life.live

    def live(self: agent.Life) -> int:
        self.code.start()
        self.code.start = lambda: None  # type: ignore[method-assign]
        return right(self)

    put(agent.Life, "live", live)
