"""What the history holds, typed: phases, faults, submissions, probes, the agents' reports, and the
dispatcher's claims.

Evidence and claims are kept apart by name: a `CreateClaim` or a `RowClaim` is what the accused says of
itself. All times are seconds on the run clock (zero = the run's start).
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(slots=True)
class Phase:
    """A stage in the life of a run; it ends where the next begins."""

    name: str
    started: float
    ended: float | None = None


class FaultClass(StrEnum):
    """What a fault is to a dispatcher, which decides what a checker may expect of it."""

    OUTAGE = "outage"
    """The API cannot take creates: servers, etcd, connections, an unreachable webhook, a load balancer."""
    ANSWER_LOST = "answer-lost"
    """Creates are committed and their answers never arrive."""
    DENIAL = "denial"
    """The API, or a webhook, answers and refuses."""
    PRESSURE = "pressure"
    """Throttling or quota."""
    DISPATCHER = "dispatcher"
    DATABASE = "database"
    NODE = "node"
    """An agent is killed or cut off."""
    SLOW = "slow"
    """The API answers, later than usual: no outage."""
    OTHER = "other"
    """No checker knows it: it proves nothing until it is given a class."""


# First match wins. An event's own "class" wins over this table.
CLASS_BY_NAME: tuple[tuple[str, FaultClass], ...] = (
    (r"den(y|ies|ied|ial)", FaultClass.DENIAL),
    (r"answer|lost-response|connections-cut", FaultClass.ANSWER_LOST),
    (r"throttl|quota|429", FaultClass.PRESSURE),
    (r"postgres|database", FaultClass.DATABASE),
    (r"agent|partition|node", FaultClass.NODE),
    (r"latency", FaultClass.SLOW),
    (r"control-plane|apiserver|etcd|proxy|connection|refused|reset|black-hole|drip|cut", FaultClass.OUTAGE),
    (r"webhook|load-balancer|crash-loop|outage", FaultClass.OUTAGE),
    (r"dispatcher|leader|replica|freeze|seam|rolling", FaultClass.DISPATCHER),
)


def class_of(name: str, said: str | None = None) -> FaultClass:
    """The class that the event says, else the one that its name tells, else OTHER."""
    if said is not None:
        return FaultClass(said) if said in set(FaultClass) else FaultClass.OTHER
    spelled = name.replace("_", "-")
    return next((kind for pattern, kind in CLASS_BY_NAME if re.search(pattern, spelled)), FaultClass.OTHER)


@dataclass(slots=True)
class Fault:
    """One fault from its injection to its confirmed end, as the suite recorded it."""

    name: str
    kind: FaultClass
    lanes: tuple[str, ...] | None = None
    """The lanes it was aimed at; None for all."""
    inject_began: float | None = None
    fired_at: float | None = None
    """When it was confirmed to bite: the evidence's own time where given."""
    heal_began: float | None = None
    healed_at: float | None = None
    """When the suite confirmed its end, over all lanes. A lane's own moment is `Records.healed_at`."""
    failures: list[str] = field(default_factory=list)
    """Steps that failed their own test, with what was seen."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """What each step showed, by step."""

    def active(self, margin: float = 0.0) -> tuple[float, float]:
        """The widest span in which it may have had an effect: from the injection to the confirmed end."""
        begin = self.inject_began if self.inject_began is not None else self.fired_at
        until = self.healed_at if self.healed_at is not None else float("inf")
        return ((begin if begin is not None else float("inf")) - margin, until + margin)

    def biting(self) -> tuple[float, float]:
        """The span in which it surely held: from confirmed fired to the first step of the heal."""
        begin = self.fired_at if self.fired_at is not None else float("inf")
        until = self.heal_began if self.heal_began is not None else self.healed_at
        return (begin, until if until is not None else float("inf"))

    def hits(self, lane: str) -> bool:
        return self.lanes is None or lane in self.lanes


@dataclass(slots=True)
class Submission:
    """A task that the load handed in. `row` is the id it was given, once known."""

    lane: str
    key: str
    row: int | None
    due: float
    """When the dispatcher could first have offered it: its due time, or its acceptance if that was later."""
    outcome: str
    """ok, fail (refused), or info (unknown: the answer was lost)."""
    submitted_at: float
    expect: str = "success"
    """How it should end: success, failure (its code fails), rejected, dispatch_failed, any."""


@dataclass(slots=True, frozen=True)
class Probe:
    """One real create by the suite's own client, which is no admin."""

    t: float
    """When its answer, or its failure, was there."""
    started: float
    lane: str | None
    connection: str
    accepted: bool
    code: int | None
    cause: str | None


@dataclass(slots=True)
class Report:
    """One report of an agent (`running` or `finished`), with all its repetitions, as the agent's own output
    tells it."""

    lane: str
    row: int
    epoch: int
    pod_uid: str
    nonce: str
    what: str
    pod: str
    sent: float
    """When it was first sent."""
    accepted: float | None = None
    refused: float | None = None
    reason: str | None = None
    """Why it was refused."""
    retries: int = 0
    """How often it had to be asked again, because no answer came."""

    @property
    def identity(self) -> tuple[int, str, str]:
        return (self.epoch, self.pod_uid, self.nonce)


@dataclass(slots=True, frozen=True)
class CreateClaim:
    """CLAIM: one create as the dispatcher's outcome log tells it."""

    lane: str
    replica: str
    row: int
    epoch: int
    try_number: int
    disposition: str
    cause: str
    may_exist: bool
    started: float
    ended: float
    settled: bool
    """The settlement found its row (zero rows updated = somebody else was first)."""
    next_offer: float | None
    attempts: int | None
    unavailable_since: float | None
    decision: str | None
    """place, re-offer or fail, where the log says so."""


@dataclass(slots=True, frozen=True)
class RowClaim:
    """CLAIM: a row's last state, as the dispatcher's HTTP interface tells it at the end of the run."""

    lane: str
    row: int
    key: str
    state: str
    reason: str
    try_number: int
    max_tries: int
    retries: int
    attempt_epoch: int
    dispatch_attempts: int

    @property
    def dispatch_failed(self) -> bool:
        return self.state == "failed" and self.reason.startswith("dispatch_failed")

    @property
    def ended(self) -> bool:
        return self.state in ("success", "failed")


@dataclass(slots=True, frozen=True)
class Sample:
    """One line of samples.csv: the numbers behind the plots. Claims and probes mixed; no checker reads it."""

    t: float
    lane: str
    values: dict[str, float]
