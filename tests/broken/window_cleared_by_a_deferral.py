"""A create that was never sent ends the outage: a busy limiter lets no row ever fail (R8)."""

from dataclasses import replace

from dispatcher import rules
from tests.broken import Put


def apply(put: Put) -> None:
    right = rules._next_tick

    def _next_tick(row: rules.Row, outcome: rules.Outcome, policy: rules.Policy) -> rules.ReOffer:
        return replace(right(row, outcome, policy), dispatch_unavailable_since=None)

    put(rules, "_next_tick", _next_tick)
