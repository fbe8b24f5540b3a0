"""The figures of the checks as text, each beside its budget; and which of them a reader sees first."""

from dataclasses import dataclass
from typing import Any

from chaos.report import human

Json = dict[str, Any]

# The figures that tell the most of a check; the others stand in the fold below the table.
MAIN = {
    "load_sufficient": ("due_during", "opening_due", "due_answer_lost"),
    "fault_fired": ("fired_at_s",),
    "healed": ("heal_took_s",),
    "recovery": ("slowest_s", "never_answered", "startup_403s"),
    "single_execution": ("executed_twice", "executions"),
    "no_lost_task": ("failed", "succeeded", "unfinished"),
    "no_unexpected": ("not_handed_in",),
    "fencing": ("refused", "double_creates"),
    "dispositions": ("offers", "attempts_spent"),
    "denied": ("denied_rows", "slowest_end_s", "slowest_bystander_s"),
    "backpressure": ("put_off_rows", "most_offers", "slowest_placement_s"),
    "window": ("longest_s", "failed", "restarted"),
    "leader_terms": ("terms", "windows_restarted"),
}
BUDGET_OF = {"slowest_s": "budget_s", "longest_s": "window_s", "slowest_bystander_s": "bystander_budget_s"}
"""Which figure of a checker holds another one's budget."""
NOUGHT = frozenset(
    {"failed", "executed_twice", "unfinished", "never_answered", "not_handed_in", "double_creates", "restarted"}
)
"""Figures that count offences, where the check did not hold: none are allowed."""
LABELS = {
    "due_during": "due in the outage",
    "opening_due": "due at its start",
    "due_answer_lost": "due while answers were lost",
    "startup_403s": "403s at start-up",
    "heal_took_s": "took",
    "fired_at_s": "seen",
}


@dataclass(slots=True, frozen=True)
class Figure:
    """One figure beside its budget, as text; `share` of the budget used (0 to 1 and more) where that makes sense."""

    name: str
    label: str
    value: str
    budget: str = ""
    share: float | None = None


def figures_of(figures: Json, *, held: bool = True) -> list[Figure]:
    """Figures with their budgets beside them: those of BUDGET_OF, `x_least` for `x`, and nought for offences."""
    of = BUDGET_OF if "slowest_s" in figures else BUDGET_OF | {"slowest_placement_s": "budget_s"}
    beside = {of[name] for name in figures if of.get(name) in figures}
    beside |= {name for name in figures if name.endswith("_least") and name.removesuffix("_least") in figures}
    shown = {name: value for name, value in figures.items() if name not in beside}
    return [_figure(name, value, figures, of.get(name, ""), held) for name, value in shown.items()]


def _figure(name: str, value: Any, figures: Json, budget: str, held: bool) -> Figure:
    label, text = LABELS.get(name, human.words(name.removesuffix("_s"))), human.figure(name, value)
    if not isinstance(value, int | float):
        return Figure(name, label, text)
    least, most = figures.get(f"{name}_least"), figures.get(budget)
    if isinstance(least, int | float):
        return Figure(name, label, text, f"of at least {human.figure(name, least)}")
    if isinstance(most, int | float) and most > 0:
        return Figure(name, label, text, f"of {human.bound(most)}", value / most)
    if name in NOUGHT and value and not held:
        return Figure(name, label, text, "of 0 allowed")
    return Figure(name, label, text)


def main_figures(check: str, figures: list[Figure]) -> list[Figure]:
    """The few that tell the most: the known ones that are there and say something, else those with a budget."""
    by_name = {figure.name: figure for figure in figures if figure.value != human.NOTHING}
    known = [by_name[name] for name in MAIN.get(check, ()) if name in by_name]
    told = [figure for figure in known if figure.value != "0" or figure is known[0]]
    return told or [figure for figure in by_name.values() if figure.budget][:3] or list(by_name.values())[:2]
