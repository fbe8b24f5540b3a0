"""The lanes side by side: the same figures of each, the rule from before in the last column."""

from collections.abc import Callable
from dataclasses import dataclass

from chaos.report import human
from chaos.report.data import LaneData, RunData
from chaos.report.verdicts import Verdicts


@dataclass(slots=True, frozen=True)
class Line:
    """One figure of all lanes. `bad` names the lanes where it should be nought and is not."""

    title: str
    explain: str
    cells: dict[str, str]
    bad: frozenset[str] = frozenset()


Show = Callable[[LaneData], tuple[str, bool]]


def lines_of(data: RunData, verdicts: Verdicts) -> list[Line]:
    """The table's lines in reading order; one that no lane has a figure for is left out."""

    def task(name: str, otherwise: Callable[[LaneData], int | None], *, should_be_nought: bool = False) -> Show:
        def show(lane: LaneData) -> tuple[str, bool]:
            value = verdicts.tasks.get(lane.name, {}).get(name)
            known = value if isinstance(value, int | float) else otherwise(lane)
            return human.count(known), should_be_nought and bool(known)

        return show

    def recovery(name: str) -> Show:
        return lambda lane: (human.figure(name, verdicts.figure(lane.name, "recovery", name)), False)

    lines: list[tuple[str, str, Show]] = [
        ("Handed in", "tasks that the load submitted", task("submitted", lambda lane: len(lane.facts))),
        (
            "Due in the outage",
            "tasks that came due while the API was away",
            task("due_in_outage", lambda lane: lane.due_in_outage),
        ),
        ("Succeeded", "tasks that ended well", task("succeeded", _succeeded)),
        (
            "Failed",
            "tasks that were given up and should not have been",
            task("failed", lambda lane: lane.failed, should_be_nought=True),
        ),
        (
            "Executed twice",
            "tasks whose user code ran twice without a reason",
            task("executed_twice", lambda _: None, should_be_nought=True),
        ),
        ("Slowest recovery", "from the API’s return to the last answer", recovery("slowest_s")),
        ("Median recovery", "the middle one", recovery("median_s")),
        ("Stable after", "from then on no task waited longer than the budget", recovery("stable_at_s")),
        ("Longest wait", "the oldest due task without an answer", _longest_wait),
        ("Most often offered", "offers of one task", _most_offers),
        ("Ambiguous creates", "no answer came, but the pod may have been made", task("ambiguous_creates", _ambiguous)),
        ("Refused pods", "left-over pods that were told to stop before user code", task("refused_pods", _refused)),
        ("Attempts spent", "refusals that cost one of a task’s six attempts", task("attempts_spent", _spent)),
        (
            "403s at start-up",
            "a fresh apiserver refuses while it reads its access rules",
            lambda lane: (human.count(len(lane.startup_403s)), False),
        ),
    ]
    if any(lane.failed_as_expected for lane in data.lanes.values()):
        shows = task("failed_as_expected", lambda lane: lane.failed_as_expected)
        lines.insert(4, ("Failed as expected", "tasks that were denied on purpose, or whose code fails", shows))
    shown = []
    for title, explain, show in lines:
        cells = {name: show(lane) for name, lane in data.lanes.items()}
        if any(cell != human.NOTHING for cell, _ in cells.values()):
            bad = frozenset(name for name, (_, wrong) in cells.items() if wrong)
            shown.append(Line(title, explain, {name: cell for name, (cell, _) in cells.items()}, bad))
    return shown


def _succeeded(lane: LaneData) -> int:
    return sum(claim.state == "success" for claim in lane.lane.rows.values())


def _longest_wait(lane: LaneData) -> tuple[str, bool]:
    return human.seconds(max((age for _, age in lane.oldest), default=0.0)), False


def _most_offers(lane: LaneData) -> tuple[str, bool]:
    return human.count(max((one.offers for one in lane.facts.values()), default=0)), False


def _ambiguous(lane: LaneData) -> int:
    return sum(claim.may_exist and claim.disposition.lower() != "placed" for claim in lane.lane.all_claims())


def _refused(lane: LaneData) -> int:
    return sum(report.refused is not None and report.what == "running" for report in lane.lane.all_reports())


def _spent(lane: LaneData) -> int:
    return sum(claim.disposition.lower() == "rejected" for claim in lane.lane.all_claims())
