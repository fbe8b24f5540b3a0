"""Every five seconds every held row asks again, for as long as the outage lasts (R5)."""

from dispatcher import rules
from tests.broken import Put


def apply(put: Put) -> None:
    put(rules, "hold_s", lambda age_s, policy: policy.hold_min_s)
