"""A series as a person sees it: one line for each scenario and lane, verdict and key figures, the worst at the end."""

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.checkers import LaneVerdict, Verdict
from chaos.verdict_table import MEANING, STYLE, WORD

if TYPE_CHECKING:
    from chaos.series import Series


def figures(lane: LaneVerdict) -> dict[str, Any]:
    """The figures of a lane that are read first. Times in seconds; None where there is none."""
    recovery = lane.checkers["recovery"].figures if "recovery" in lane.checkers else {}
    tasks = lane.tasks
    return {
        "submitted": tasks.submitted,
        "succeeded": tasks.succeeded,
        "failed": tasks.failed,
        "failed_as_expected": tasks.failed_as_expected,
        "executed_twice": tasks.executed_twice,
        "ambiguous_creates": tasks.ambiguous_creates,
        "refused_pods": tasks.refused_pods,
        "attempts_spent": tasks.attempts_spent,
        "slowest_s": recovery.get("slowest_s"),
        "stable_at_s": recovery.get("stable_at_s"),
    }


COLUMNS = {
    "submitted": "tasks",
    "failed": "failed",
    "failed_as_expected": "as they\nshould",
    "executed_twice": "ran\ntwice",
    "slowest_s": "slowest\nanswer",
    "stable_at_s": "stable\nafter",
    "ambiguous_creates": "answers\nlost",
    "refused_pods": "pods\nrefused",
    "attempts_spent": "attempts\nspent",
}


def show(series: "Series", console: Console) -> None:
    """Print the table, what is amiss in each run, and where all is kept."""
    head = Text.assemble(
        f"{series.name}, {series.profile} profile, seed {series.seed}, {len(series.lines)} runs in "
        f"{series.took_s / 60:.1f} min: ",
        (WORD[series.verdict], STYLE[series.verdict]),
        f" ({MEANING[series.verdict]})",
    )
    console.print()
    console.print(head, soft_wrap=True)
    console.print()
    console.print(_table(series))
    for line in series.lines:
        for why in line.result.reasons:
            name = f"{line.result.scenario}, seed {line.result.seed}"
            console.print(Text(f"{name}: {why}", style=STYLE[line.result.verdict]), soft_wrap=True)
    console.print()
    console.print(f"series: {series.directory / 'series.json'}", markup=False, highlight=False, soft_wrap=True)


def _table(series: "Series") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("scenario", "seed", "took", "lane", "verdict"):
        table.add_column(title, no_wrap=True, justify="right" if title in ("seed", "took") else "left")
    for title in COLUMNS.values():
        table.add_column(title, justify="right")
    for line in series.lines:
        first = [line.result.scenario, str(line.result.seed), f"{line.took_s:.0f} s"]
        for lane in line.result.lanes.values():
            table.add_row(*first, lane.name, _word(lane), *_cells(lane))
            first = ["", "", ""]
    for name, why in series.left_out.items():
        table.add_row(name, "", "", "", Text(f"left out: {why}", style="dim"))
    return table


def _word(lane: LaneVerdict) -> Text:
    """The control's answers are in brackets: they never decide."""
    if not lane.decides and lane.verdict is not Verdict.VALID:
        return Text(f"({WORD[lane.verdict].lower()})", style="dim")
    return Text(WORD[lane.verdict], style=STYLE[lane.verdict])


def _cells(lane: LaneVerdict) -> list[str]:
    shown = figures(lane)
    return [_cell(shown[name]) for name in COLUMNS]


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.1f} s" if isinstance(value, float) else str(value)
