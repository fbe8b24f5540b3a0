"""What operators look at: task instances, the outage, health, metrics."""

import asyncio
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy.exc import SQLAlchemyError

from dispatcher.api.problems import Problem
from dispatcher.api.services import Services, Serving, known_client
from dispatcher.api.submitters import answer
from dispatcher.rules import would_fail_at
from dispatcher.schema import State
from dispatcher.store import views

router = APIRouter(tags=["operators"])

_SCRAPE_S = 1.0
_HELD = "held: Kubernetes API unavailable: "  # how rules.decide begins the reason of a row that rides an outage out


@router.get("/v1/tasks", dependencies=[Depends(known_client)])
async def list_tasks(
    services: Serving,
    state: State | None = None,
    reason: Annotated[str | None, Query(max_length=500, description="how the reason begins")] = None,
    run_id: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[
        str | None, Query(pattern="^[0-9]{1,18}$", description="`next_cursor` of the page before")
    ] = None,
) -> Response:
    """Task instances, oldest first, page by page."""
    async with services.transaction() as connection:
        rows = await views.tasks_page(
            connection, limit=limit + 1, after_id=int(cursor or 0), state=state, reason=reason, run_id=run_id
        )
    page = rows[:limit]
    return answer({"tasks": page, "next_cursor": str(page[-1]["id"]) if len(rows) > limit else None})


@router.get("/v1/outage", dependencies=[Depends(known_client)])
async def outage(services: Serving) -> Response:
    """Is the Kubernetes API down, since when, how many rows hold, which would fail first and when.

    The leader knows it from its own creates. Another replica reads it from the rows: at least two hold, and no
    pod was placed after the newest of them began to.
    """
    async with services.transaction() as connection:
        held = await views.holding(connection)
    leads = services.leadership is not None and services.leadership.leads
    down = services.health.down if leads else held.rows >= 2 and not held.answered_since
    first, policy = held.first, services.settings.rules
    return answer(
        {
            "down": down,
            "since": (services.health.since if leads and down else None) or held.since,
            "cause": (services.health.cause if leads and down else None) or _cause_of(first),
            "rows_holding": held.rows,
            "window_s": services.settings.window_s,
            "first_to_fail": None
            if first is None
            else {
                "id": first["id"],
                "run_id": first["run_id"],
                "key": first["key"],
                "since": first["dispatch_unavailable_since"],
                "next_offer_at": first["next_offer_at"],
                "fails_from": would_fail_at(first["dispatch_unavailable_since"], policy),
            },
        }
    )


def _cause_of(row: views.Shown | None) -> str | None:
    reason = (row or {}).get("reason") or ""
    return reason.removeprefix(_HELD) if reason.startswith(_HELD) else None


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """This process answers. It says nothing of the database or of the Kubernetes API, which may both be down."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(services: Serving) -> dict[str, str]:
    """The database answers and has our schema. Never the Kubernetes API: agents need us most while it is down."""
    async with services.transaction() as connection:
        await views.schema_is_there(connection)
    return {"status": "ok"}


@router.get("/metrics")
async def metrics(services: Serving) -> Response:
    """Prometheus text. What stands in the database is read in this scrape, or marked as unread."""
    await refresh(services)
    return Response(services.metrics.text(), media_type=CONTENT_TYPE_LATEST)


async def refresh(services: Services) -> None:
    """Bring the gauges up to date."""
    found, leadership = services.metrics, services.leadership
    found.leader_term.set((leadership.term or 0) if leadership is not None and leadership.leads else 0)
    found.api_down.set(services.health.down)
    now = services.clock.now()
    try:
        async with asyncio.timeout(_SCRAPE_S), services.transaction() as connection:
            figures = await views.figures(connection, now=now)
    except (SQLAlchemyError, OSError, Problem):
        found.database_up.set(0)
        return
    found.database_up.set(1)
    for state in State:
        found.rows.labels(state).set(figures.by_state.get(state, 0))
    found.holding.set(figures.holding)
    found.oldest_due.set(_age(figures.oldest_due_at, now))
    since = figures.oldest_unavailable_since
    found.oldest_unavailable.set(_age(since, now))
    left = timedelta(seconds=services.settings.window_s) - (now - since) if since is not None else None
    found.window_left.set(max(0.0, left.total_seconds()) if left is not None else float("inf"))


def _age(since: datetime | None, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds()) if since is not None else 0.0
