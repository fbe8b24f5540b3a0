"""Combines the checkers' answers: per lane, then over the lanes that decide.

The control lane is judged like the others and never decides: it is there to fail. But a control that failed no task
shows that the outage was too short to prove anything, which makes an `upgrade` run unknown.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from chaos.audit import Answer
from chaos.checkers.base import Checker, CheckResult, Verdict, worst
from chaos.checkers.registry import CHECKERS
from chaos.events import FaultClass
from chaos.records import Lane, Records


@dataclass(slots=True, frozen=True)
class Tasks:
    """A lane in numbers."""

    submitted: int
    due_in_outage: int
    succeeded: int
    """By the ledger: rows with an execution that ended with success."""
    failed: int
    """By the dispatcher's own words: rows that it says have failed, though they should not have."""
    failed_as_expected: int
    """The same, of tasks that should: a webhook denied them, or their window was made to expire."""
    executed_twice: int
    ambiguous_creates: int
    """Creates that were not heard to be placed and may have made a pod."""
    refused_pods: int
    """Agents that were told to terminate before any user code ran."""
    attempts_spent: int


@dataclass(slots=True)
class LaneVerdict:
    name: str
    mode: str
    policy: str
    decides: bool
    verdict: Verdict
    tasks: Tasks
    checkers: dict[str, CheckResult]


@dataclass(slots=True)
class Result:
    """The verdict on a run, and everything that result.json shows."""

    scenario: str
    profile: str
    cluster: str
    kubernetes: str
    seed: int
    verdict: Verdict
    duration_s: float
    faults: list[dict[str, Any]]
    lanes: dict[str, LaneVerdict]
    budgets: dict[str, float] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)
    """What makes the run as a whole unknown: steps that failed, a control that failed no task."""
    reasons: list[str] = field(default_factory=list)
    """Why the verdict is not valid, in one line each: the trouble, then each lane's checkers."""
    claim: str = ""
    command: str = ""


def judge(records: Records, *, trouble: Sequence[str] = (), checkers: Sequence[Checker] = CHECKERS) -> Result:
    """Judge a run. `trouble` are steps of the run that failed their own test, beside those that the history tells:
    each makes the run unknown, neither passed nor failed: what a broken-off run shows may be the breaking off."""
    run, trouble = records.run, [*dict.fromkeys([*records.trouble, *trouble])]
    if not records.drained:
        trouble.append("the run was broken off before its drain")
    lanes = {name: _judge_lane(records, lane, checkers) for name, lane in records.lanes.items()}
    deciding = [lane for lane in lanes.values() if lane.decides]
    if not deciding:
        trouble.append("no lane of this run decides anything")
    for lane in lanes.values():
        if run.compared and not lane.decides and lane.tasks.failed == 0:
            trouble.append(f"{lane.name} failed no task: the outage was too short to prove anything")
    reasons = [
        f"{lane.name}: {name} is {answer.verdict}: {'; '.join(answer.reasons)}"
        for lane in deciding
        for name, answer in lane.checkers.items()
        if answer.verdict in (Verdict.INVALID, Verdict.UNKNOWN)
    ]
    verdicts = [lane.verdict for lane in deciding] + ([Verdict.UNKNOWN] if trouble else [])
    verdict = Verdict.UNKNOWN if trouble else worst(verdicts)
    return Result(
        scenario=run.scenario,
        profile=run.profile,
        cluster=run.cluster,
        kubernetes=run.kubernetes,
        seed=run.seed,
        verdict=Verdict.UNKNOWN if verdict is Verdict.NOT_APPLICABLE else verdict,
        duration_s=round(records.end, 1),
        faults=[
            {"name": f.name, "fired_at_s": _rounded(f.fired_at), "healed_at_s": _rounded(f.healed_at)}
            for f in records.faults
        ],
        lanes=lanes,
        budgets=dict(run.budgets),
        trouble=trouble,
        reasons=[*trouble, *reasons],
        claim=run.claim,
        command=run.command,
    )


def _judge_lane(records: Records, lane: Lane, checkers: Sequence[Checker]) -> LaneVerdict:
    answers: dict[str, CheckResult] = {}
    for checker in checkers:
        try:
            answers[checker.name] = checker.check(records, lane.name)
        except Exception as error:  # a judge that breaks down has shown nothing, and must not hide the others' answers
            where = f"{type(error).__name__}: {error}"
            answers[checker.name] = CheckResult(Verdict.UNKNOWN, reasons=[f"the checker itself failed: {where}"])
    return LaneVerdict(
        name=lane.name,
        mode=lane.info.mode,
        policy=lane.info.policy,
        decides=lane.info.decides,
        verdict=worst(answer.verdict for answer in answers.values()),
        tasks=_tasks(records, lane, answers),
        checkers=answers,
    )


def _tasks(records: Records, lane: Lane, answers: dict[str, CheckResult]) -> Tasks:
    in_outage = set()
    for fault in records.episodes(lane.name, FaultClass.OUTAGE):
        if fault.fired_at is not None:
            over = records.healed_at(fault, lane.name) or fault.healed_at or records.end
            in_outage |= {one.row for one in lane.due_between(fault.fired_at, over)}
    twice = answers.get("single_execution", CheckResult(Verdict.UNKNOWN)).figures.get("executed_twice", 0)
    spent = answers.get("dispositions", CheckResult(Verdict.UNKNOWN)).figures.get("attempts_spent")
    if spent is None:
        spent = sum(create.answer is Answer.REJECTED for create in lane.all_creates())
    failed = {row for row, claim in lane.rows.items() if claim.state == "failed"}
    should = {row for row, submission in lane.by_row.items() if submission.expect != "success"}
    return Tasks(
        submitted=len(lane.by_row),
        due_in_outage=len(in_outage),
        succeeded=sum(any(one.outcome == "success" for one in ran) for ran in lane.executions.values()),
        failed=len(failed - should),
        failed_as_expected=len(failed & should),
        executed_twice=twice,
        ambiguous_creates=sum(claim.may_exist and claim.disposition != "Placed" for claim in lane.all_claims()),
        refused_pods=len(
            {(r.row, r.identity) for r in lane.all_reports() if r.what == "running" and r.refused is not None}
        ),
        attempts_spent=spent,
    )


def _rounded(t: float | None) -> float | None:
    return None if t is None else round(t, 3)


def as_json(result: Result) -> dict[str, Any]:
    """result.json: the shape that chaos.md fixes, with budgets, reasons and the lanes' kinds beside it."""
    return {
        "schema": 1,
        "scenario": result.scenario,
        "profile": result.profile,
        "cluster": result.cluster,
        "kubernetes": result.kubernetes,
        "seed": result.seed,
        "verdict": result.verdict.value,
        "duration_s": result.duration_s,
        "faults": result.faults,
        "lanes": {
            name: {
                "verdict": lane.verdict.value,
                "mode": lane.mode,
                "policy": lane.policy,
                "decides": lane.decides,
                "tasks": asdict(lane.tasks),
                "checkers": {
                    checker: {
                        "verdict": answer.verdict.value,
                        "figures": answer.figures,
                        "first_offence": answer.first_offence,
                        "offences": answer.offences,
                        "reasons": answer.reasons,
                    }
                    for checker, answer in lane.checkers.items()
                },
            }
            for name, lane in result.lanes.items()
        },
        "budgets": result.budgets,
        "reasons": result.reasons,
        "claim": result.claim,
        "command": result.command,
    }
