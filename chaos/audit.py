"""The apiserver's audit log: every create of a task pod that reached it, with its answer.

The second witness. An event's row and epoch come from the User-Agent, which is known even where a request was
refused before its body was read; its lane comes from the namespace. The answers are sorted here by the
judge's own reading of rules R1 to R3 (`answer_of`), made from code, reason and message of `responseStatus`
alone; it shares nothing with the dispatcher's classification, so that the one can convict the other.

Source: `k8s.io/apiserver/pkg/apis/audit/v1` Event; policy: level Request for creates of pods.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from chaos import jsonl


class Answer(StrEnum):
    """What the apiserver's answer to a create means, by R1 to R3."""

    PLACED = "Placed"
    UNAVAILABLE = "Unavailable"
    BACKPRESSURE = "Backpressure"
    REJECTED = "Rejected"


USER_AGENT = re.compile(r"^rideout-dispatcher/\S+ \(row=(\d+); epoch=(\d+)\)")
DENIED = re.compile(r'^admission webhook "[^"]*" denied the request')
CALL_FAILED = re.compile(r"^Internal error occurred: failed calling webhook ")
QUOTA = re.compile(r'^pods "[^"]*" is forbidden: (exceeded quota|status unknown for quota): ')

UNAVAILABLE_REASONS = frozenset({"ServiceUnavailable", "Timeout", "ServerTimeout", "InternalError"})
# k8s.io/apimachinery/pkg/apis/meta/v1/types.go, StatusReason; the answers among them that are no outage.
REFUSAL_REASONS = frozenset(
    {
        "Unauthorized",
        "Forbidden",
        "NotFound",
        "AlreadyExists",
        "Conflict",
        "Gone",
        "Invalid",
        "StorageReadError",
        "BadRequest",
        "MethodNotAllowed",
        "NotAcceptable",
        "RequestEntityTooLarge",
        "UnsupportedMediaType",
        "Expired",
    }
)


def answer_of(code: int, reason: str = "", message: str = "") -> Answer:
    """Sort one answer: a webhook's denial first (it may borrow any code), then 429, then a known reason, then
    code.

    A webhook that denies was reached and answered, so its 500 or 503 is a rejection; every other 5xx says
    that the API could not take the request.
    """
    if code == 201:
        return Answer.PLACED
    if DENIED.match(message):
        return Answer.REJECTED
    if code == 429 or reason == "TooManyRequests":
        return Answer.BACKPRESSURE
    refused = reason == "Forbidden" or (code == 403 and reason not in UNAVAILABLE_REASONS)
    if refused and QUOTA.match(message):
        return Answer.BACKPRESSURE
    if reason in UNAVAILABLE_REASONS:
        return Answer.UNAVAILABLE
    if reason in REFUSAL_REASONS:
        return Answer.REJECTED
    if 300 <= code < 500 and code != 408:
        return Answer.REJECTED
    return Answer.UNAVAILABLE


@dataclass(slots=True, frozen=True)
class Create:
    """One request to create a task pod, as the apiserver saw it. Times are seconds on the run clock."""

    lane: str
    row: int
    epoch: int
    try_number: int | None
    """From the pod's label; None where the request was refused before its body was read."""
    started: float
    """When the apiserver received the request."""
    ended: float
    """When it had answered."""
    code: int
    reason: str
    message: str
    answer: Answer
    pod_name: str
    audit_id: str

    @property
    def committed(self) -> bool:
        """The pod was made, whether or not the answer reached the client."""
        return self.code == 201

    @property
    def denied(self) -> bool:
        """A webhook was called and denied it."""
        return DENIED.match(self.message) is not None

    @property
    def uncallable(self) -> bool:
        """A fail-closed webhook could not be called."""
        return self.reason == "InternalError" and CALL_FAILED.match(self.message) is not None

    @property
    def forbidden(self) -> bool:
        """A 403 that is neither quota nor a webhook's denial: RBAC, or an informer that has not synced."""
        return self.code == 403 and self.answer is Answer.REJECTED and not self.denied


def read(
    path: Path,
    started_wall: float,
    lane_of: Mapping[str, str],
    damage: jsonl.Damage | None = None,
) -> Iterator[Create]:
    """Yield the dispatchers' pod creates in the order of the log.

    `started_wall` is the run's zero in Unix seconds; `lane_of` maps namespaces to lanes. Others' creates (the
    probe's, the scheduler's bindings) and dry runs are passed over. An event that comes twice, as happens
    with several stages, is yielded once.
    """
    damage = damage if damage is not None else jsonl.Damage()
    seen: set[str] = set()
    for event in jsonl.read(path, damage):
        try:
            create = _create(event, started_wall, lane_of)
        except (KeyError, TypeError, ValueError, AttributeError):
            damage.damaged += 1
            continue
        if create is None or create.audit_id in seen:
            continue
        if create.audit_id:
            seen.add(create.audit_id)
        yield create


def _create(event: dict[str, Any], started_wall: float, lane_of: Mapping[str, str]) -> Create | None:
    if event.get("verb") != "create" or event.get("stage") in ("RequestReceived", "ResponseStarted"):
        return None
    target = event.get("objectRef") or {}
    if target.get("resource") != "pods" or target.get("subresource"):
        return None
    lane = lane_of.get(target.get("namespace", ""))
    agent = USER_AGENT.match(event.get("userAgent") or "")
    if lane is None or agent is None or "dryRun=" in (event.get("requestURI") or ""):
        return None
    status = event.get("responseStatus") or {}
    metadata = (event.get("requestObject") or {}).get("metadata") or {}
    tried = str((metadata.get("labels") or {}).get("rideout.dev/try", ""))
    code, reason, message = status.get("code") or 0, status.get("reason") or "", status.get("message") or ""
    return Create(
        lane=lane,
        row=int(agent[1]),
        epoch=int(agent[2]),
        try_number=int(tried) if tried.isdigit() else None,
        started=_seconds(event["requestReceivedTimestamp"]) - started_wall,
        ended=_seconds(event["stageTimestamp"]) - started_wall,
        code=code,
        reason=reason,
        message=message,
        answer=answer_of(code, reason, message),
        pod_name=metadata.get("name") or target.get("name") or "",
        audit_id=event.get("auditID") or "",
    )


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
