"""The verdict as a person sees it at the end of a run: lanes side by side, figures beside budgets, no composite score.

Plain text where there is no terminal: rich leaves colours out by itself, and nothing here depends on them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.checkers import LaneVerdict, Result, Verdict

STYLE = {
    Verdict.VALID: "green",
    Verdict.INVALID: "bold red",
    Verdict.UNKNOWN: "bold yellow",
    Verdict.NOT_APPLICABLE: "dim",
}
WORD = {Verdict.VALID: "valid", Verdict.INVALID: "INVALID", Verdict.UNKNOWN: "UNKNOWN", Verdict.NOT_APPLICABLE: "-"}
MEANING = {
    Verdict.VALID: "every claim holds in every lane that decides",
    Verdict.INVALID: "a claim is broken",
    Verdict.UNKNOWN: "the run proves nothing either way: repeat it",
    Verdict.NOT_APPLICABLE: "",
}


def show(result: Result, directory: Path, console: Console) -> None:
    """Print the table, what was first amiss, and where the records are."""
    head = Text.assemble(
        f"{result.scenario}, {result.profile} profile, seed {result.seed}, Kubernetes {result.kubernetes}: ",
        (WORD[result.verdict], STYLE[result.verdict]),
        f" ({MEANING[result.verdict]})",
    )
    console.print()
    console.print(head, soft_wrap=True)
    console.print()
    console.print(_table(result))
    for line in _amiss(result):
        console.print(line, soft_wrap=True)
    console.print()
    for label, name in (("report", "report.html"), ("result", "result.json")):
        if (directory / name).exists():
            console.print(f"{label}: {directory / name}", markup=False, highlight=False, soft_wrap=True)
    if result.command:
        console.print(f"again: {result.command}", markup=False, highlight=False, soft_wrap=True)


def _table(result: Result) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("budget", justify="right", style="dim")
    for lane in result.lanes.values():
        table.add_column(f"{lane.name}\n{'now' if lane.decides else 'before'}", justify="right")
    lanes = list(result.lanes.values())
    for label, budget, cell in _figures(result):
        table.add_row(label, budget, *(cell(lane) for lane in lanes))
    table.add_row()
    names = {name: None for lane in lanes for name in lane.checkers}
    for name in names:
        table.add_row(name.replace("_", " "), "", *(_answer(lane, name) for lane in lanes))
    table.add_row("lane", "", *(_word(lane, lane.verdict) for lane in lanes))
    return table


Cell = Callable[[LaneVerdict], Text]


def _figures(result: Result) -> list[tuple[str, str, Cell]]:
    recovery = next(
        (lane.checkers["recovery"].figures for lane in result.lanes.values() if "recovery" in lane.checkers), {}
    )
    budget = recovery.get("budget_s") or result.budgets.get("recovery_s")
    within = "" if budget is None else f"{budget:g} s"
    submitted = result.budgets.get("submitted")
    return [
        ("tasks handed in", "" if submitted is None else f">= {submitted:g}", _count("submitted")),
        ("due in the outage", "", _count("due_in_outage")),
        ("succeeded", "", _count("succeeded")),
        ("failed", "0", _count("failed", bad_above=0)),
        *_only_if_any(result, "failed, as they should", "failed_as_expected"),
        ("executed twice", "0", _count("executed_twice", bad_above=0)),
        ("slowest answer", within, _seconds("slowest_s", budget)),
        ("stable after", within, _seconds("stable_at_s", budget)),
        ("ambiguous creates, pods refused", "", _lost_and_refused),
        ("attempts spent", "", _count("attempts_spent")),
        ("  of them start-up 403s", "", _startup_403s),
    ]


def _only_if_any(result: Result, label: str, name: str) -> list[tuple[str, str, Cell]]:
    """A line that most scenarios have no use for."""
    return [(label, "", _count(name))] if any(getattr(lane.tasks, name) for lane in result.lanes.values()) else []


def _count(name: str, bad_above: int | None = None) -> Cell:
    def cell(lane: LaneVerdict) -> Text:
        value = getattr(lane.tasks, name)
        return Text(str(value), style="bold red" if bad_above is not None and value > bad_above else "")

    return cell


def _seconds(name: str, budget: float | None) -> Cell:
    def cell(lane: LaneVerdict) -> Text:
        figures = lane.checkers["recovery"].figures if "recovery" in lane.checkers else {}
        value = figures.get(name)
        if value is None:
            return Text("never" if name in figures and figures.get("never_answered") else "-")
        return Text(f"{value:.1f} s", style="bold red" if budget is not None and value > budget else "")

    return cell


def _lost_and_refused(lane: LaneVerdict) -> Text:
    return Text(f"{lane.tasks.ambiguous_creates}, {lane.tasks.refused_pods}")


def _startup_403s(lane: LaneVerdict) -> Text:
    figures = lane.checkers["recovery"].figures if "recovery" in lane.checkers else {}
    return Text(str(figures.get("startup_403s", "-")))


def _answer(lane: LaneVerdict, name: str) -> Text:
    return _word(lane, lane.checkers[name].verdict) if name in lane.checkers else Text("-")


def _word(lane: LaneVerdict, verdict: Verdict) -> Text:
    """The control's answers are in brackets: they never decide."""
    if not lane.decides and verdict is not Verdict.VALID:
        return Text(f"({WORD[verdict].lower()})", style="dim")
    return Text(WORD[verdict], style=STYLE[verdict])


def _amiss(result: Result) -> Iterator[Text]:
    """One line each for what is wrong: the run's own trouble; of every lane that decides, the first offence of each
    broken checker, and why another one is unknown."""
    for what in result.trouble:
        yield Text(f"unknown: {what}", style="yellow")
    for lane in result.lanes.values():
        for name, answer in lane.checkers.items() if lane.decides else ():
            first = answer.first_offence
            if first is not None:
                row = "" if first.get("row") is None else f" row {first['row']}"
                at = "" if first.get("t") is None else f" at {first['t']:.1f} s"
                rest = f" (and {answer.offences - 1} more)" if answer.offences > 1 else ""
                yield Text(f"invalid: {lane.name}, {name}:{row}{at}: {first['what']}{rest}", style="red")
            elif answer.verdict is Verdict.UNKNOWN:
                yield Text(f"unknown: {lane.name}, {name}: {'; '.join(answer.reasons)}", style="yellow")
