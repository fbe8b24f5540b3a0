"""Submit a run, look at a run."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Path, Response

from dispatcher.api.problems import Problem
from dispatcher.api.services import Serving, known_client
from dispatcher.api.submissions import Submission, UnknownExecutor
from dispatcher.store import submissions, views

router = APIRouter(tags=["runs"], dependencies=[Depends(known_client)])

RowId = Annotated[int, Path(ge=1, le=2**63 - 1)]


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON by orjson: the task list is read often, and whole. SQLAlchemy's column names are a subclass of str, which
    orjson takes as a key only with OPT_NON_STR_KEYS."""
    return Response(orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS), status, headers, "application/json")


@router.post("/v1/runs", status_code=201)
async def submit_run(submission: Submission, services: Serving) -> Response:
    """Take a run in, all of it or nothing. The same key and body again: 200 and the same run."""
    now, settings = services.clock.now(), services.settings
    try:
        rows = submission.rows(now=now, namespace=settings.namespace, executors=settings.executors)
    except UnknownExecutor as error:
        raise Problem(422, str(error)) from error
    async with services.transaction() as connection:
        submitted = await submissions.submit_once(
            connection,
            now=now,
            key=submission.key,
            name=submission.name,
            labels=submission.labels,
            digest=submission.digest(),
            tasks=rows,
        )
        if not submitted.same_body:
            raise Problem(409, f"key {submission.key!r} was used for another run", run_id=submitted.run_id)
        run = await views.run_by_id(connection, submitted.run_id)
    assert run is not None
    tasks = [{"id": row["id"], "key": row["key"], "state": row["state"]} for row in run["tasks"]]
    status = 201 if submitted.created else 200
    body = {"id": run["id"], "name": run["name"], "state": run["state"], "tasks": tasks}
    return answer(body, status, {"Location": f"/v1/runs/{run['id']}"})


@router.get("/v1/runs/{run_id}")
async def get_run(run_id: RowId, services: Serving) -> Response:
    """A run with all its task instances."""
    async with services.transaction() as connection:
        run = await views.run_by_id(connection, run_id)
    if run is None:
        raise Problem(404, f"there is no run {run_id}")
    return answer(run)
