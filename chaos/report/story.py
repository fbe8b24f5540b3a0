"""What happened, in sentences with numbers; made of records and result, and careful where either is silent."""

from collections.abc import Iterable

from chaos.events import Fault, FaultClass
from chaos.report import human
from chaos.report.data import Band, LaneData, RunData
from chaos.report.verdicts import Verdicts

# What a class of faults does to a dispatcher, in words.
DID = {
    FaultClass.OUTAGE: "the API could take no pods",
    FaultClass.ANSWER_LOST: "pods were made and the API's answers never arrived",
    FaultClass.DENIAL: "pods were refused on purpose",
    FaultClass.PRESSURE: "pods were throttled",
    FaultClass.DISPATCHER: "the dispatcher itself was disturbed",
    FaultClass.DATABASE: "the database was disturbed",
    FaultClass.NODE: "agents were killed or cut off",
    FaultClass.OTHER: "something was disturbed",
}


def headline(data: RunData | None, verdicts: Verdicts) -> str:
    """One sentence under the verdict."""
    if not verdicts.judged:
        return "Nobody has judged this run: it proves nothing yet."
    if verdicts.verdict == "unknown":
        return "This run proves nothing, neither for nor against the dispatcher. It has to be repeated."
    if verdicts.verdict == "invalid":
        lanes = sorted({offence.lane for offence in verdicts.deciding_offences})
        broken = [
            line for line in verdicts.checks if any(c and c.offence and c.offence.decides for c in line.cells.values())
        ]
        named = human.listed([f"“{line.title}”" for line in broken]) or "a check"
        return f"{named} did not hold{f' in {human.listed(lanes)}' if lanes else ''}."
    if data is None:
        return "Every check held in every lane that decides."
    return _in_short(data, verdicts)


def _in_short(data: RunData, verdicts: Verdicts) -> str:
    """`None of 240 tasks failed and …; the rule from before failed 37 of 120 under the same outage.`"""
    failed, submitted = _failed(data.deciding, verdicts), _submitted(data.deciding, verdicts)
    told = f"{_none(failed).capitalize()} of {human.plural(submitted, 'task')} failed{_meant(data, verdicts)}"
    slow = slowest(data, verdicts)
    if slow is not None:
        told += f", and each was answered within {human.seconds(slow[1])} of the API’s return"
    if data.controls:
        before, of = _failed(data.controls, verdicts), _submitted(data.controls, verdicts)
        told += f". Under the same faults the rule from before failed {human.count(before)} of {human.count(of)}"
    return f"{told}."


def what_happened(data: RunData, verdicts: Verdicts) -> list[str]:
    """The story: the outage and the load in it; before and now; then any further fault."""
    told = _other_faults(data) if data.outage is None else []
    if data.outage is not None and data.outage_s is not None and data.outage.fired_at is not None:
        begin, end = data.outage.fired_at, data.outage.fired_at + data.outage_s
        told.append(
            f"For {human.seconds(data.outage_s)} (from {human.clock(begin)} to {human.clock(end)} on the run’s clock, "
            f"{_named(data.outage)}) the API could take no pods, and {_due(data)} came due in that time."
        )
    elif data.outage is not None:
        told.append(
            f"The fault “{data.outage.name}” fired at {human.clock(data.outage.fired_at)}; its end was never seen."
        )
    told.append(_now(data, verdicts, capital=True) if not data.controls else _before_and_now(data, verdicts))
    return told if data.outage is None else told + _other_faults(data)


def _named(outage: Fault) -> str:
    """`fault “a”`, or `faults “a” and “b”` where one took over from the other."""
    names = [f"“{name}”" for name in outage.name.split(", ")]
    return f"{'fault' if len(names) == 1 else 'faults'} {human.listed(names)}"


def _due(data: RunData) -> str:
    counts = {lane.name: lane.due_in_outage for lane in data.lanes.values()}
    if len(set(counts.values())) == 1:
        each = " in each lane" if len(counts) > 1 else ""
        return f"{human.plural(next(iter(counts.values())), 'task')}{each}"
    return f"{human.plural(sum(counts.values()), 'task')} ({_each(counts.items())})"


def _each(pairs: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{human.count(value)} in {name}" for name, value in pairs)


def _before_and_now(data: RunData, verdicts: Verdicts) -> str:
    failed, submitted = _failed(data.controls, verdicts), _submitted(data.controls, verdicts)
    return (
        f"Under the rule from before the decision {human.count(failed)} of {human.count(submitted)} tasks failed; "
        f"{_now(data, verdicts)}"
    )


def _now(data: RunData, verdicts: Verdicts, *, capital: bool = False) -> str:
    """`now 0 of 240 tasks failed, and the slowest … was answered 31.0 s after the API's return (60 s are allowed)`."""
    failed, submitted = _failed(data.deciding, verdicts), _submitted(data.deciding, verdicts)
    start = f"{'Of' if capital else 'now, of'} {human.plural(submitted, 'task')}, {_none(failed)} failed"
    start += _meant(data, verdicts) + _else(data, verdicts)
    slow = slowest(data, verdicts)
    if slow is None:
        return f"{start}."
    lane, took = slow
    budget = human.bound(data.records.run.recovery_budget_s)
    return (
        f"{start}, and the slowest waiting one ({lane}) was answered {human.seconds(took)} after the API’s return "
        f"({budget} are allowed)."
    )


def _meant(data: RunData, verdicts: Verdicts) -> str:
    """` (beside 5 that should)`; empty where none should."""
    meant = sum(_task_figure(lane, verdicts, "failed_as_expected", lane.failed_as_expected) for lane in data.deciding)
    return f" (beside {human.count(meant)} that should)" if meant else ""


def _else(data: RunData, verdicts: Verdicts) -> str:
    """What went wrong beside failing; empty where nothing did."""
    told = ""
    for name, check, words in (
        ("unfinished", "no_lost_task", "never ended"),
        ("executed_twice", "single_execution", "ran twice"),
    ):
        found = [verdicts.figure(lane.name, check, name) for lane in data.deciding]
        count = sum(int(value) for value in found if isinstance(value, int | float))
        told += f", {human.count(count)} {words}" if count else ""
    return told


def _none(value: int) -> str:
    return "none" if value == 0 else human.count(value)


def slowest(data: RunData, verdicts: Verdicts) -> tuple[str, float] | None:
    """The slowest recovery among the lanes that decide, as the checker measured it."""
    found = []
    for lane in data.deciding:
        took = verdicts.figure(lane.name, "recovery", "slowest_s")
        if isinstance(took, int | float):
            found.append((lane.name, float(took)))
    return max(found, key=lambda one: one[1], default=None)


def _failed(lanes: list[LaneData], verdicts: Verdicts) -> int:
    return sum(_task_figure(lane, verdicts, "failed", lane.failed) for lane in lanes)


def _submitted(lanes: list[LaneData], verdicts: Verdicts) -> int:
    return sum(_task_figure(lane, verdicts, "submitted", len(lane.facts)) for lane in lanes)


def _task_figure(lane: LaneData, verdicts: Verdicts, name: str, otherwise: int) -> int:
    value = verdicts.tasks.get(lane.name, {}).get(name)
    return int(value) if isinstance(value, int | float) else otherwise


def _within(band: Band, outage: Fault) -> bool:
    begin, end = outage.active()
    return begin <= band.begin and band.end <= max(end, band.begin)


def _other_faults(data: RunData) -> list[str]:
    told = []
    for band in data.bands:
        fault = band.fault
        if data.outage is not None and fault.name in data.outage.name.split(", ") and _within(band, data.outage):
            continue
        if band.fired_at is None:
            told.append(f"The fault “{fault.name}” was injected at {human.clock(band.begin)} and was not seen to fire.")
            continue
        span = f"for {human.seconds(band.end - band.fired_at)}" if band.healed else "to the end of the records"
        told.append(f"From {human.clock(band.fired_at)}, {span}, {DID[fault.kind]} (fault “{fault.name}”).")
    return told
