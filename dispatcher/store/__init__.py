"""Every statement that moves a row, named by its guard. `now` is a parameter of each (R23).

A statement that meets a row which moved on meanwhile updates nothing. That is a normal, counted outcome (R13):
the pod won the race, or somebody else owns the row.

Three habits hold for all of them (R10):
- what bumps the epoch clears `pod_name`, `pod_uid` and `agent_nonce` (`NEXT_EPOCH`);
- what ends a claim clears `claimed_by` and `claim_until` (`UNCLAIMED`);
- batches are one statement for many rows, and still guarded a row each (`is_current`).
"""

from dispatcher.store.claims import Claim, claim_due, re_offer_dead_claims
from dispatcher.store.leading import lead_if_free, resign_if_leading
from dispatcher.store.planning import end_finished_runs, plan_due_reschedules, plan_due_retries
from dispatcher.store.settlements import Settlement, settle_if_current

__all__ = [
    "Claim",
    "Settlement",
    "claim_due",
    "end_finished_runs",
    "lead_if_free",
    "plan_due_reschedules",
    "plan_due_retries",
    "re_offer_dead_claims",
    "resign_if_leading",
    "settle_if_current",
]
