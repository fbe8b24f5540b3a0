"""What operators do: clear task instances, cancel a run, pause and resume dispatching (R8, R21)."""

from typing import Annotated, Self

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from dispatcher.api.problems import Problem
from dispatcher.api.services import Serving, known_client
from dispatcher.api.submitters import RowId, answer
from dispatcher.schema import State
from dispatcher.store import operators, views

router = APIRouter(tags=["operators"], dependencies=[Depends(known_client)])

_AT_ONCE = 1000


class Filter(BaseModel):
    model_config = ConfigDict(extra="forbid")

    state: State | None = None
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(None, description="how it begins")
    run_id: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None


class Clear(BaseModel):
    """Which rows to clear: by id, or by what they are. With `dry_run` nothing is written."""

    model_config = ConfigDict(extra="forbid")

    ids: Annotated[list[Annotated[int, Field(ge=1, le=2**63 - 1)]], Field(min_length=1, max_length=_AT_ONCE)] | None = (
        None
    )
    filter: Filter | None = None
    after_id: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(0, description="`next_after_id` of the call before")
    dry_run: bool = False

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or a filter")
        if self.filter is not None and not self.filter.model_dump(exclude_none=True):
            raise ValueError("an empty filter would clear everything: name a state, a reason or a run_id")
        return self


class Resume(BaseModel):
    model_config = ConfigDict(extra="forbid")

    restart_windows: bool = Field(False, description="let windows that ran out during the pause begin anew")


@router.post("/v1/tasks/clear")
async def clear_tasks(clear: Clear, services: Serving) -> Response:
    """Start a new try of each row, at most 1,000 a call. Running rows are refused; a lone one with a 409.

    `next_after_id` says that the filter matches further rows: call again from behind it.
    """
    async with services.transaction() as connection:
        if clear.ids is not None:
            wanted, next_after_id = sorted(set(clear.ids)), None
        else:
            assert clear.filter is not None
            chosen = await views.tasks_page(
                connection,
                limit=_AT_ONCE + 1,
                after_id=clear.after_id,
                state=clear.filter.state,
                reason=clear.filter.reason,
                run_id=clear.filter.run_id,
            )
            wanted = [row["id"] for row in chosen[:_AT_ONCE]]
            next_after_id = wanted[-1] if len(chosen) > _AT_ONCE else None
        clearable = await operators.not_running(connection, wanted)
        cleared = clearable
        if not clear.dry_run:
            cleared = await operators.clear_if_not_running(connection, sorted(clearable), now=services.clock.now())
    refused = sorted(set(wanted) - cleared)
    if clear.ids is not None and not cleared:
        raise Problem(409, "nothing was cleared: the rows are running, or do not exist", refused=refused)
    return answer(
        {"dry_run": clear.dry_run, "cleared": sorted(cleared), "refused": refused, "next_after_id": next_after_id}
    )


@router.post("/v1/runs/{run_id}/cancel")
async def cancel_run(run_id: RowId, services: Serving) -> Response:
    """Fail what is not ended yet of a run, also in an outage. Running code learns it from its agent's next report."""
    async with services.transaction() as connection:
        if await views.run_by_id(connection, run_id) is None:
            raise Problem(404, f"there is no run {run_id}")
        cancelled = await operators.cancel_live_rows(connection, run_id, now=services.clock.now())
    return answer({"cancelled": cancelled})


@router.post("/v1/pause")
async def pause(services: Serving) -> Response:
    """Claim nothing until it is resumed. Running tasks go on; outage starts are kept (R8)."""
    async with services.transaction() as connection:
        await operators.pause(connection, now=services.clock.now())
    return answer({"paused": True})


@router.post("/v1/resume")
async def resume(choice: Resume, services: Serving) -> Response:
    """Claim again. Says how many rows would fail at their next Unavailable; `restart_windows` spares them (R8)."""
    async with services.transaction() as connection:
        was_paused, at_risk = await operators.resume(
            connection,
            now=services.clock.now(),
            window_s=services.settings.window_s,
            restart_windows=choice.restart_windows,
        )
    return answer(
        {
            "was_paused": was_paused,
            "windows_spent": at_risk,
            "windows_restarted": at_risk if choice.restart_windows else 0,
        }
    )
