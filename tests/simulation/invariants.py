"""What must hold after every step, by name. A violation says which one, of which row, and what led there."""

from collections.abc import Sequence
from enum import StrEnum


class Invariant(StrEnum):
    """Each names its rule; `tests/broken` names the one that each wrong dispatcher turns red."""

    ONE_AT_A_TIME = "one execution of a row at a time (R11, R15)"
    ONE_IN_ALL = "one execution of a try in all, but for lost agents and reschedules (R15, R20)"
    REFUSED_NEVER_RUNS = "user code starts only in a process whose RUNNING was accepted (R11)"
    PROVEN_TERMINATION = "should_terminate only if the row proves it (R14)"
    FENCE = "a report or a settlement counts only under its row's epoch, pod and process (R11-R13, R16)"
    EPOCH = "the epoch grows by one with every claim and requeue, and never falls (R10)"
    ONE_CREATE = "one create request an epoch, under a name of its own (R17)"
    DISPOSITION = "an outcome is settled as what it is (R1-R3)"
    WINDOW = "a row fails for the outage at its window's end: not before, and then it does (R4)"
    OUTAGE_START = "dispatch_unavailable_since is stamped, kept and cleared as R8 says"
    HOLD = "the next offer comes when R5, R6 and the backpressure delay say"
    ATTEMPTS = "the attempt budget is spent by rejections only (R6)"
    TERMINAL = "dispatch_failed is terminal: max_tries falls to the try (R7)"
    USER_RETRIES = "tries are counted by the user's own failures and by clears only (R7, R21)"
    RE_PLACE = "re-placed only what is proven gone, and never while it could be wrong (R15, R20)"
    INFRA = "re-places are counted, and the sixth in a row fails the row (R20)"
    LEGAL_MOVE = "every move of a row has its mover (R13, R16, R21)"
    RUNS = "a run ends when all its rows have, and is not reaped before (R21)"
    PODS = "clean-up takes no pod whose attempt may still run (R22)"
    OFFERED = "what is due is offered while somebody leads (R5, R18)"
    SHORT_TRANSACTIONS = "no transaction is open while time passes (R10)"
    TERMS = "terms of leaders do not overlap (R19)"
    NOT_LOST = "no row is lost"
    NOT_STUCK = "with everything healed every row ends"
    NO_BUG = "nothing raises what nobody expected (R3)"


class Violated(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: Invariant, row: int | None, what: str, story: Sequence[str]) -> None:
        self.invariant, self.row = invariant, row
        where = f" row {row}:" if row is not None else ""
        self.line = f"{invariant.name}:{where} {what}"
        told = "\n".join(("  " + line) for line in story)
        super().__init__(f"{self.line}\n  ({invariant.value})\n{told}")
