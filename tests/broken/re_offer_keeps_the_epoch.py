"""A re-offer does not bump the epoch: nothing tells the pod of a lost answer from its successor (R10)."""

from dispatcher.store import settlements
from tests.broken import Put


def apply(put: Put) -> None:
    put(settlements, "NEXT_EPOCH", {"pod_name": None, "pod_uid": None, "agent_nonce": None})
