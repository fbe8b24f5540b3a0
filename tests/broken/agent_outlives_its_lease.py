"""An agent that cannot renew its lease lets its user code run on, while the row is placed again (R15)."""

from typing import Any

from dispatcher import agent
from tests.broken import Put


def apply(put: Put) -> None:
    class Lease(agent.Lease):
        def __init__(self, sent_at: float, grace_s: float, fields: Any) -> None:
            super().__init__(sent_at, grace_s, fields)
            self.term_at = self.kill_at = sent_at + 1e6

    put(agent, "Lease", Lease)
