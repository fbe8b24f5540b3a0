"""The agents' side: RUNNING, heartbeats, ends (R11, R12, R14–R16). Every replica answers (R19)."""

from typing import Annotated, Any, Literal

import structlog
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from dispatcher.api.problems import Problem
from dispatcher.api.services import Services, Serving, bearer, bounded
from dispatcher.api.submitters import RowId
from dispatcher.reports import Accepted, Answer, Refused, Unproven
from dispatcher.store.reports import End, Reporter
from dispatcher.tokens import BadToken

log = structlog.get_logger(__name__)
router = APIRouter(prefix="/v1/attempts/{row_id}", tags=["agents"])

_MAX_RESCHEDULE_S = 30 * 86_400
Report = Literal["running", "heartbeat", "finished"]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]


class FromAgent(BaseModel):
    """What every report carries. Unknown members are ignored: an older dispatcher must understand a newer agent."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)
    epoch: Annotated[int, Field(ge=0, le=2**63 - 1)]
    pod_uid: Name
    nonce: Name


class Finished(FromAgent):
    outcome: End
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    reschedule_after_s: Annotated[float, Field(ge=0, le=_MAX_RESCHEDULE_S)] | None = None


def attempt(row_id: RowId, request: Request, services: Serving) -> tuple[int, int]:
    """The (row, epoch) of the token, which must be the path's row. 401 and 403 never mean terminate (R14)."""
    try:
        signed = services.tokens.read(bearer(request))
    except BadToken as error:
        raise Problem(401, str(error), headers={"WWW-Authenticate": "Bearer"}) from error
    if signed[0] != row_id:
        raise Problem(403, "the token is another row's")
    return signed


Attempt = Annotated[tuple[int, int], Depends(attempt)]


@router.post("/running")
async def running(signed: Attempt, body: FromAgent, services: Serving) -> dict[str, Any]:
    """May this process start user code? 200 is yes."""
    who = _reporter(signed, body)
    async with bounded(services):
        _accepted_or_problem(services, "running", who, await services.reports.running(who))
    return {"decision": "run", **_lease(services)}


@router.post("/heartbeat")
async def heartbeat(signed: Attempt, body: FromAgent, services: Serving) -> dict[str, Any]:
    """Does it still run under its epoch? Renews its lease."""
    who = _reporter(signed, body)
    async with bounded(services):
        _accepted_or_problem(services, "heartbeat", who, await services.reports.heartbeat(who))
    return {"decision": "renewed", **_lease(services)}


@router.post("/finished")
async def finished(signed: Attempt, body: Finished, services: Serving) -> dict[str, Any]:
    """How it ended."""
    who = _reporter(signed, body)
    async with bounded(services):
        told = await services.reports.finished(
            who, body.outcome, exit_code=body.exit_code, reschedule_after_s=body.reschedule_after_s or 0.0
        )
        _accepted_or_problem(services, "finished", who, told)
    return {"decision": "recorded"}


def _reporter(signed: tuple[int, int], body: FromAgent) -> Reporter:
    row_id, epoch = signed
    if epoch != body.epoch:
        raise Problem(403, "the token is another epoch's")
    return Reporter(row_id, epoch, body.pod_uid, body.nonce)


def _lease(services: Services) -> dict[str, float]:
    settings = services.settings
    return {"lease_s": settings.lease_s, "heartbeat_s": settings.heartbeat_s, "margin_s": settings.lease_margin_s}


def _accepted_or_problem(services: Services, report: Report, who: Reporter, told: Answer) -> None:
    """Raise the problem that an answer is, if it is one. The only place that says `should_terminate` (R14)."""
    services.metrics.reports.labels(report, type(told).__name__.lower()).inc()
    match told:
        case Accepted():
            return
        case Refused(reason, detail):
            services.metrics.refusals.labels(report, reason).inc()
            log.info(
                "fence.refused", report=report, row=who.row_id, epoch=who.epoch, pod_uid=who.pod_uid, reason=reason
            )
            raise Problem(409, detail, should_terminate=True, reason=reason)
        case Unproven(row_exists=False):
            raise Problem(404, f"there is no row {who.row_id}")
        case Unproven():
            raise Problem(503, "the row moved meanwhile; ask again", headers={"Retry-After": "1"})
