"""The ledger: what the user code that really ran wrote about itself, outside the dispatcher's reach.

The first witness. User code appends a `start` and an `end`; the node appends an `exit` when the whole process
group is gone, so that killed code has an end too. Every line is fsynced before the code goes on.
"""

from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import Any

from chaos import jsonl

ORDER = {"start": 0, "end": 1, "exit": 2}


@dataclass(slots=True)
class Execution:
    """One start of user code. Times are seconds on the run clock."""

    lane: str
    row: int
    try_number: int
    epoch: int
    pod_uid: str
    nonce: str
    started: float
    ended: float | None = None
    """When the code said that it was done; None for code that was killed or still runs."""
    outcome: str | None = None
    """success, failure or reschedule, as the code said; None where it said nothing."""
    exited: float | None = None
    """When the node saw the process group gone."""
    exit_code: int | None = None

    @property
    def over(self) -> float | None:
        """When it had surely ended; None when nothing shows that it did."""
        return self.ended if self.ended is not None else self.exited

    @property
    def identity(self) -> tuple[int, str, str]:
        """What the fence compares: epoch, pod uid and the nonce of the agent's process."""
        return (self.epoch, self.pod_uid, self.nonce)


@dataclass(slots=True)
class Ledger:
    """All executions of a run, by start. `unmatched_ends` are ends whose start is missing: lost evidence."""

    executions: list[Execution] = field(default_factory=list)
    unmatched_ends: list["Line"] = field(default_factory=list)


def read(path: Path, started_mono: float, damage: jsonl.Damage | None = None) -> Ledger:
    """Read and pair the ledger's lines; `started_mono` is the run's zero on CLOCK_MONOTONIC, in seconds.

    Lines are paired by time and not by their place in the file: several processes write it.
    """
    damage = damage if damage is not None else jsonl.Damage()
    events = []
    for raw in jsonl.read(path, damage):
        try:
            events.append(Line.of(raw, started_mono))
        except (KeyError, TypeError, ValueError):
            damage.damaged += 1
    events.sort(key=lambda event: (event.t, ORDER[event.kind]))
    ledger = Ledger()
    by_identity: dict[tuple[str, int, int, str, str], list[Execution]] = {}
    by_pod: dict[tuple[str, str], list[Execution]] = {}
    for event in events:
        key = (event.lane, event.row, event.epoch, event.pod_uid, event.nonce)
        if event.kind == "start":
            execution = Execution(
                event.lane, event.row, event.try_number, event.epoch, event.pod_uid, event.nonce, event.t
            )
            ledger.executions.append(execution)
            by_identity.setdefault(key, []).append(execution)
            by_pod.setdefault((event.lane, event.pod_uid), []).append(execution)
        elif event.kind == "end":
            running = [one for one in by_identity.get(key, ()) if one.ended is None]
            if running:
                running[0].ended, running[0].outcome = event.t, event.outcome
            else:
                ledger.unmatched_ends.append(event)
        else:
            for one in by_pod.get((event.lane, event.pod_uid), ()):
                if one.exited is None:
                    one.exited, one.exit_code = event.t, event.code
    return ledger


@dataclass(slots=True)
class Line:
    """One line. An `exit` has neither try nor nonce: the node knows the pod only."""

    kind: str
    lane: str
    row: int
    try_number: int
    epoch: int
    pod_uid: str
    nonce: str
    t: float
    outcome: str | None
    code: int | None

    @classmethod
    def of(cls, raw: dict[str, Any], started_mono: float) -> "Line":
        kind = raw["event"]
        if kind not in ORDER:
            raise ValueError(kind)
        of_code = kind != "exit"
        return cls(
            kind=intern(kind),
            lane=intern(raw["lane"]),
            row=int(raw["row"]),
            try_number=int(raw["try"]) if of_code else 0,
            epoch=int(raw["epoch"]),
            pod_uid=intern(raw["pod_uid"]),
            nonce=intern(raw["nonce"]) if of_code else "",
            t=raw["t_mono"] - started_mono,
            outcome=raw.get("outcome"),
            code=raw.get("code"),
        )
