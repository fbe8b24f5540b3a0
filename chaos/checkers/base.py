"""The contract of a checker, and its three answers.

A checker claims one thing in two sentences and decides it for one lane, from the records alone. `unknown` is not
green: it means that the records do not suffice to say either, and the run has to be repeated.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from chaos.records import Records


class Verdict(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"
    """The lane has no input for this checker: it takes no part in the verdict."""


SEVERITY = (Verdict.INVALID, Verdict.UNKNOWN, Verdict.VALID, Verdict.NOT_APPLICABLE)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Invalid beats unknown beats valid; what is not applicable never decides, except where nothing else is there."""
    return min(verdicts, key=SEVERITY.index, default=Verdict.NOT_APPLICABLE)


Figures = dict[str, Any]
Offence = dict[str, Any]
"""The first row that broke the claim: always "row", "t" (run clock, or None) and "what" in words; more as it helps."""


@dataclass(slots=True)
class CheckResult:
    """`figures` are shown beside their budgets; `reasons` say in words why a verdict is not valid."""

    verdict: Verdict
    figures: Figures = field(default_factory=dict)
    first_offence: Offence | None = None
    reasons: list[str] = field(default_factory=list)
    offences: int = 0
    """How many there were in all."""


class Checker(Protocol):
    """One claim. Its docstring states it; `name` is its key in result.json."""

    name: str

    def check(self, records: Records, lane: str) -> CheckResult: ...


@dataclass(slots=True)
class Finding:
    """Collects what a checker comes across, and turns it into a result.

    An offence makes the claim invalid. A doubt makes it unknown, unless there is an offence: what was seen broken is
    broken, however little else was seen.
    """

    records: Records
    lane: str
    figures: Figures = field(default_factory=dict)
    offences: list[Offence] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def offence(self, row: int | None, t: float | None, what: str, **more: Any) -> None:
        self.offences.append({"row": row, "t": None if t is None else round(t, 3), "what": what, **more})

    def absence(self, witness: str, row: int | None, t: float | None, what: str, **more: Any) -> None:
        """Something should be in a witness and is not: an offence, if that witness lost nothing."""
        damage = self.records.damage[witness]
        if damage.complete:
            self.offence(row, t, what, **more)
        else:
            self.need(witness)
            self.doubt(f"row {row}: {what}; or the line that shows it is lost")

    def doubt(self, why: str) -> None:
        if why not in self.doubts:
            self.doubts.append(why)

    def need(self, *witnesses: str) -> None:
        """The claim is "nothing of the kind happened": it cannot be made from a witness that is silent or damaged."""
        for witness in witnesses:
            damage = self.records.damage[witness]
            if damage.missing or damage.silent:
                self.doubt(f"{witness}.jsonl is {'missing' if damage.missing else 'empty'}")
            elif damage.damaged:
                self.doubt(f"{witness}.jsonl has {damage.damaged} damaged lines")
            elif damage.torn:
                self.doubt(f"the last line of {witness}.jsonl is torn off")

    def result(self) -> CheckResult:
        if not self.offences:
            verdict = Verdict.UNKNOWN if self.doubts else Verdict.VALID
            return CheckResult(verdict, self.figures, None, list(self.doubts))
        first = min(self.offences, key=lambda one: (one["t"] is None, one["t"] or 0.0))
        said = _in_words(self.offences)
        return CheckResult(Verdict.INVALID, self.figures, first, [*said, *self.doubts], len(self.offences))


def _in_words(offences: list[Offence], at_most: int = 5) -> list[str]:
    said = [f"row {one['row']}: {one['what']}" if one["row"] is not None else one["what"] for one in offences]
    rest = len(said) - at_most
    return said[:at_most] + ([f"and {rest} more"] if rest > 0 else [])


def not_applicable(why: str) -> CheckResult:
    return CheckResult(Verdict.NOT_APPLICABLE, reasons=[why])
