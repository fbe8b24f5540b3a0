"""The budget is compared one too late: a row that is always rejected is offered a seventh time (R6)."""

from dataclasses import replace

from dispatcher import rules
from tests.broken import Put


def apply(put: Put) -> None:
    right = rules._spend_an_attempt

    def _spend(row: rules.Row, outcome: rules.Outcome, policy: rules.Policy) -> rules.Decision:
        return right(row, outcome, replace(policy, attempts=policy.attempts + 1))

    put(rules, "_spend_an_attempt", _spend)
