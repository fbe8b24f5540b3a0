"""Brings a run's records together: final rows, outcome logs, leadership terms, the audit log.

What a dispatcher says of itself goes into the history as a claim. Everything is taken as far as it can be had: a
record that is missing makes a checker say "unknown", and says so there.
"""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from chaos import lanes as lane_processes
from chaos import leaders
from chaos.errors import ChaosError
from chaos.history import History
from chaos.lanes import Lane
from chaos.stage import Run, Stage

ROW_FIELDS = ("key", "state", "reason", "try_number", "max_tries", "retries", "attempt_epoch", "dispatch_attempts")


async def collect(stage: Stage) -> None:
    """Final rows over HTTP, then stop the lanes, then their outcome logs, leadership terms and the audit log."""
    run = stage.run
    for lane in stage.lanes.values():
        try:
            rows = await lane.rows()
        except ChaosError as error:
            run.progress.note(f"no final rows of lane {lane.name}: {error}")
            continue
        for row in rows:
            fields = {name: row.get(name) for name in ROW_FIELDS}
            run.history.write("info", lane.name, "row", lane=lane.name, row=row["id"], **fields)
    await lane_processes.stop(stage.lanes.values())
    copy_outcomes(run, stage.lanes.values())
    for lane in stage.lanes.values():
        await copy_terms(run, lane, stage.bed.database_url(lane.name, driver="postgresql"))
    kept = run.directory.path / "audit.jsonl"
    if stage.bed.audit_log != kept:  # the apiserver of a testbed that is one run's own writes it in place
        with stage.bed.audit_log.open("rb") as log, kept.open("wb") as copy:
            log.seek(stage.bed.audit_from)
            shutil.copyfileobj(log, copy)


async def copy_terms(run: Run, lane: Lane, database: str) -> None:
    """The leadership table into the history: who held which term, from when to when on the run clock. A claim too."""
    try:
        terms = await asyncio.to_thread(leaders.terms, database)
    except psycopg.Error as error:
        run.progress.note(f"no leadership terms of lane {lane.name}: {' '.join(str(error).split())}")
        return
    zero = run.directory.started_wall
    for term in terms:
        run.history.write(
            "info",
            lane.name,
            "leader_term",
            lane=lane.name,
            term=term.term,
            holder=term.holder,
            since=round(term.began_at.timestamp() - zero, 6),
            until=round(term.expires_at.timestamp() - zero, 6),
            resigned=term.resigned,
        )


def copy_outcomes(run: Run, lanes: Any) -> None:
    """The dispatchers' outcome logs into the history, as claims on the run clock."""
    for lane in lanes:
        for number, log in enumerate(lane.outcome_logs, start=1):
            for claim in outcomes(log):
                write_claim(run.history, lane, number, claim, run.directory.started_wall)


def outcomes(log: Path) -> Iterator[dict[str, Any]]:
    """The lines of an outcome log; a torn last line is left out, a missing log is empty."""
    if not log.exists():
        return
    for line in log.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            try:
                yield json.loads(line)
            except ValueError:
                continue


def write_claim(history: History, lane: Lane, number: int, claim: dict[str, Any], started_wall: float) -> None:
    def on_run_clock(wall: float | None) -> float | None:
        return None if wall is None else round(wall - started_wall, 6)

    fields = {name: claim.get(name) for name in ("row", "epoch", "try", "disposition", "cause", "may_exist", "settled")}
    history.write(
        "info",
        f"{lane.name}/{number}",
        "create",
        t=on_run_clock(claim["ended"]),
        lane=lane.name,
        **fields,
        attempts=claim.get("attempts"),
        decision=claim.get("decision"),
        started=on_run_clock(claim["started"]),
        ended=on_run_clock(claim["ended"]),
        next_offer=on_run_clock(claim.get("next_offer")),
        unavailable_since=on_run_clock(claim.get("unavailable_since")),
    )
