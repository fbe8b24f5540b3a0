"""The window is measured to the end of the create: one that began within it and hung fails its row (R4)."""

from dataclasses import replace

from dispatcher import rules
from tests.broken import Put


def apply(put: Put) -> None:
    right = rules._ride_out

    def _ride_out(row: rules.Row, outcome: rules.Outcome, policy: rules.Policy) -> rules.Decision:
        if rules.window_is_spent(row.dispatch_unavailable_since, outcome.ended_at, policy):
            outcome = replace(outcome, started_at=outcome.ended_at)
        return right(row, outcome, policy)

    put(rules, "_ride_out", _ride_out)
