"""result.json as the report shows it: checks × lanes with figures beside their budgets, offences, reasons.

Read as plain JSON and forgivingly: a report of a run that was never judged, or whose result is torn, must still come.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from chaos.checkers import CHECKERS
from chaos.report import human
from chaos.report.budgets import Figure, figures_of, main_figures

Json = dict[str, Any]

# name in result.json → (what people call it, the claim in one line)
CHECKS: dict[str, tuple[str, str]] = {
    "load_sufficient": (
        "Enough load",
        "Enough tasks were due before, in and after each fault for the run to prove anything.",
    ),
    "fault_fired": ("The fault happened", "A client of the suite, no part of the dispatcher, saw each fault bite."),
    "healed": ("The fault was over", "Afterwards a real create by a client that is no admin was accepted again."),
    "recovery": (
        "Quick recovery",
        "Every task that waited was offered again and answered within the budget after the API's return.",
    ),
    "single_execution": ("Runs once", "User code of a task ran once, and no two runs of it overlapped."),
    "no_lost_task": ("Nothing lost", "Every task that was handed in ended as it should."),
    "no_unexpected": ("Nothing uninvited", "Nothing ran that was not handed in."),
    "fencing": (
        "Old attempts fenced off",
        "A pod left over from an earlier attempt was told to stop before it ran user code.",
    ),
    "dispositions": ("Faults read right", "Each refusal was taken for what it was, and spent what it should spend."),
    "denied": (
        "Denials end what they are meant for",
        "What was to be denied ended in minutes; nothing else suffered.",
    ),
    "backpressure": (
        "“Not now” only puts off",
        "Throttling and a used-up quota cost no attempt; the task came back.",
    ),
    "window": ("Outage window", "A task gave up only once its outage had lasted for the whole window."),
    "leader_terms": ("One leader at a time", "Terms of leadership did not overlap, and a change restarted no window."),
}
JUDGED = re.compile(r"^(?P<lane>[^:]+): (?P<check>\w+) is (?P<verdict>\w+): (?P<why>.*)$", re.DOTALL)
"""How result.json words a check's reason."""
SYMBOLS = {"valid": "✓", "invalid": "✕", "unknown": "?", "not_applicable": "–"}
WORDS = {"valid": "valid", "invalid": "invalid", "unknown": "unknown", "not_applicable": "does not apply"}


@dataclass(slots=True, frozen=True)
class Offence:
    """The first row that broke a check in a lane."""

    lane: str
    check: str
    row: int | None
    t: float | None
    what: str
    decides: bool
    more: Json = field(default_factory=dict)

    @property
    def title(self) -> str:
        return title_of(self.check)

    @property
    def anchor(self) -> str:
        return f"offence-{_slug(self.lane)}-{_slug(self.check)}"


@dataclass(slots=True, frozen=True)
class Cell:
    """One check in one lane."""

    verdict: str
    figures: list[Figure]
    offence: Offence | None
    reasons: list[str]

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.verdict]

    @property
    def word(self) -> str:
        return WORDS[self.verdict]

    def main(self, check: str) -> list[Figure]:
        """The few figures that tell the most."""
        return main_figures(check, self.figures)


@dataclass(slots=True, frozen=True)
class CheckLine:
    """One check over all lanes."""

    name: str
    title: str
    claim: str
    cells: dict[str, Cell | None]

    @property
    def applies(self) -> bool:
        """Some lane has something to be checked."""
        return any(cell is not None and cell.verdict != "not_applicable" for cell in self.cells.values())


@dataclass(slots=True)
class Verdicts:
    """The whole result. `judged` is False where result.json is missing or cannot be read; `trouble` then says why."""

    verdict: str
    judged: bool
    trouble: str | None
    raw: Json
    lanes: dict[str, str]
    """Lane → its verdict."""
    checks: list[CheckLine]
    tasks: dict[str, Json]
    reasons: list[str]
    """Why the verdict is not valid, most important first."""
    offences: list[Offence]
    """Of lanes that decide, then of the control; each by time."""

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.verdict]

    @property
    def deciding_offences(self) -> list[Offence]:
        return [offence for offence in self.offences if offence.decides]

    def figure(self, lane: str, check: str, name: str) -> Any:
        """A checker's figure as it is in result.json; None where there is none."""
        found = _dict(_dict(_dict(_dict(self.raw.get("lanes")).get(lane)).get("checkers")).get(check))
        return _dict(found.get("figures")).get(name)

    @classmethod
    def read(cls, path: Path, control: frozenset[str]) -> "Verdicts":
        """Read result.json. `control` are the lanes that never decide. Never raises for what is in the file."""
        raw, trouble = _load(path)
        lanes = {name: _dict(lane) for name, lane in _dict(raw.get("lanes")).items()}
        cells = {
            (check, name): _cell(name, check, _dict(found), name not in control)
            for name, lane in lanes.items()
            for check, found in _dict(lane.get("checkers")).items()
        }
        known = [*CHECKS, *(check for check, _ in cells if check not in CHECKS)]
        names = [check for check in dict.fromkeys(known) if any(check == of for of, _ in cells)]
        checks = [
            CheckLine(check, title_of(check), claim_of(check), {name: cells.get((check, name)) for name in lanes})
            for check in names
        ]
        offences = [cell.offence for cell in cells.values() if cell.offence is not None]
        offences.sort(key=lambda one: (not one.decides, one.t is None, one.t or 0.0))
        return cls(
            verdict=_verdict(raw.get("verdict")) if trouble is None else "unknown",
            judged=trouble is None,
            trouble=trouble,
            raw=raw,
            lanes={name: _verdict(lane.get("verdict")) for name, lane in lanes.items()},
            checks=checks,
            tasks={name: _dict(lane.get("tasks")) for name, lane in lanes.items()},
            reasons=list(_reasons(raw, cells, control)),
            offences=offences,
        )


def _load(path: Path) -> tuple[Json, str | None]:
    try:
        raw = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, "result.json is missing: nobody has judged this run yet"
    except (OSError, orjson.JSONDecodeError) as error:
        return {}, f"result.json cannot be read ({error})"
    if not isinstance(raw, dict) or _verdict(raw.get("verdict")) != raw.get("verdict"):
        return _dict(raw), "result.json holds no verdict"
    return raw, None


def _cell(lane: str, check: str, found: Json, decides: bool) -> Cell:
    verdict = _verdict(found.get("verdict"))
    figures = figures_of(_dict(found.get("figures")), held=verdict == "valid")
    reasons = [str(one) for one in found.get("reasons") or ()]
    return Cell(verdict, figures, _offence(lane, check, found.get("first_offence"), decides), reasons)


def _offence(lane: str, check: str, told: object, decides: bool) -> Offence | None:
    if not isinstance(told, dict):
        return None
    row, t, what = told.get("row"), told.get("t"), told.get("what")
    return Offence(
        lane=lane,
        check=check,
        row=row if isinstance(row, int) else None,
        t=float(t) if isinstance(t, int | float) else None,
        what=str(what or "no words for it are on record"),
        decides=decides,
        more={name: value for name, value in told.items() if name not in ("row", "t", "what")},
    )


def _reasons(raw: Json, cells: dict[tuple[str, str], Cell], control: frozenset[str]) -> Iterator[str]:
    """The run's own reasons first, then what of the checks they do not hold yet."""
    said: list[str] = []
    top = raw.get("reasons")
    for reason in top if isinstance(top, list) else [top] if top else []:
        judged = JUDGED.match(str(reason))
        told = str(reason)
        if judged:
            apart = "" if judged["verdict"] == raw.get("verdict") else f" ({judged['verdict']})"
            told = f"{judged['lane']}, “{title_of(judged['check'])}”{apart}: {judged['why']}"
        said.append(told)
        yield told
    for (check, lane), cell in cells.items():
        if lane in control or cell.verdict not in ("unknown", "invalid"):
            continue
        for reason in cell.reasons or [cell.offence.what if cell.offence else "no reason is on record"]:
            if not any(reason in one for one in said):
                told = f"{lane}, “{title_of(check)}”: {reason}"
                said.append(told)
                yield told


def claim_of(check: str) -> str:
    """The claim of a check in a line: ours, else the first sentence that the checker says of itself."""
    if check in CHECKS:
        return CHECKS[check][1]
    told = next((checker.__doc__ or "" for checker in CHECKERS if checker.name == check), "")
    return " ".join(told.split()).split(". ")[0].rstrip(".") + ("." if told else "")


def title_of(check: str) -> str:
    """What people call a check."""
    return CHECKS[check][0] if check in CHECKS else human.words(check).capitalize()


def _verdict(value: object) -> str:
    return value if isinstance(value, str) and value in SYMBOLS else "unknown"


def _dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())
