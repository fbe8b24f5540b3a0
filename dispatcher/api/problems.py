"""Errors as RFC 9457 problem documents: every one of them, ours and the framework's."""

from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, SQLAlchemyError
from starlette.exceptions import HTTPException

log = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
_TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    422: "Unprocessable Content",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Problem(Exception):
    """Raised by a handler; `extra` members join the document (RFC 9457, 3.2)."""

    def __init__(self, status: int, detail: str, *, headers: dict[str, str] | None = None, **extra: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.extra = status, detail, headers, extra


def problem(status: int, detail: str, *, headers: dict[str, str] | None = None, **extra: Any) -> JSONResponse:
    title = _TITLES.get(status, "Error")
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **extra}
    return JSONResponse(body, status, headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Turn everything a handler may raise into a problem document.

    A database that is away, slow or refusing is a 503, never more than that: only a row proves anything (R14).
    """

    @app.exception_handler(Problem)
    async def ours(_: Request, error: Problem) -> JSONResponse:
        return problem(error.status, error.detail, headers=error.headers, **error.extra)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        found = error.errors()
        if any(one["type"] == "json_invalid" for one in found):
            return problem(400, "the body is no JSON")
        # What was sent is not repeated: specs hold secrets.
        errors = [{"pointer": _pointer(one["loc"]), "detail": one["msg"]} for one in found[:20]]
        return problem(422, f"{errors[0]['pointer']}: {errors[0]['detail']}", errors=errors)

    @app.exception_handler(HTTPException)
    async def framework(_: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, str(error.detail), headers=dict(error.headers or {}))

    @app.exception_handler(DataError)
    async def unstorable(_: Request, error: DataError) -> JSONResponse:
        return problem(422, "the database cannot store or compare one of the values")

    @app.exception_handler(SQLAlchemyError)
    @app.exception_handler(OSError)  # TimeoutError is one
    async def away(request: Request, error: Exception) -> JSONResponse:
        log.warning("api.database_away", path=request.url.path, error=type(error).__name__)
        return problem(503, "the database does not answer; ask again", headers={"Retry-After": "1"})

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        return problem(500, "a bug; it is in the log")


def _pointer(location: tuple[int | str, ...]) -> str:
    """`("body", "tasks", 0, "key")` as a JSON pointer; a query or path parameter by its name."""
    where, *rest = location
    if where != "body":
        return str(rest[0]) if rest else str(where)
    return "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in rest)
