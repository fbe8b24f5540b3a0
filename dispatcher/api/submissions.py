"""What may be submitted. A value that could only fail later, in the database or as a Pod, is refused here."""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator

_RESERVED = frozenset(
    f"RIDEOUT_{name}"
    for name in ("ROW", "EPOCH", "TRY", "TOKEN", "DISPATCHERS", "POD_UID", "POD_NAME", "NONCE", "TIMEOUT_S")
)
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"  # k8s.io/apimachinery/pkg/util/validation: qualified name
_PREFIX = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_QUANTITY = r"^[+]?([0-9]+|[0-9]+[.][0-9]*|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$"
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


def _no_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("a NUL character cannot be stored")
    return text


def _not_reserved(name: str) -> str:
    if name in _RESERVED:
        raise ValueError(f"{name} is set by the dispatcher")
    return name


def _no_own_label(key: str) -> str:
    if key.startswith("rideout.dev/") or key == "app.kubernetes.io/managed-by":
        raise ValueError(f"{key} is set by the dispatcher")
    return key


def _in_range(due_at: datetime) -> datetime:
    if not _EARLIEST <= due_at < _LATEST:
        raise ValueError("must lie between 1970 and 2200")
    return due_at.astimezone(UTC)


Text = Annotated[str, AfterValidator(_no_nul)]
Key = Annotated[Text, StringConstraints(min_length=1, max_length=250, pattern=r"^[^\x00-\x1f\x7f]+$")]
Argument = Annotated[Text, StringConstraints(max_length=131_072)]  # Linux: MAX_ARG_STRLEN
EnvName = Annotated[
    str, StringConstraints(max_length=255, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$"), AfterValidator(_not_reserved)
]
LabelKey = Annotated[
    str, StringConstraints(max_length=317, pattern=rf"^({_PREFIX}/)?{_NAME}$"), AfterValidator(_no_own_label)
]
LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=rf"^({_NAME})?$")]
Quantity = Annotated[str, StringConstraints(max_length=40, pattern=_QUANTITY)]
Resource = Annotated[str, StringConstraints(max_length=317, pattern=rf"^({_PREFIX}/)?{_NAME}$")]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=64)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Resources(_Strict):
    requests: Annotated[dict[Resource, Quantity], Field(max_length=32)] = {}
    limits: Annotated[dict[Resource, Quantity], Field(max_length=32)] = {}


class Spec(_Strict):
    """What one attempt runs."""

    image: Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[\x21-\x7e]+$")] | None = Field(
        None, description="container image; unset: the dispatcher's default"
    )
    command: Annotated[list[Argument], Field(min_length=1, max_length=1000)]
    args: Annotated[list[Argument], Field(max_length=1000)] = []
    env: Annotated[dict[EnvName, Argument], Field(max_length=1000)] = {}
    namespace: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] | None = Field(
        None, description="unset: the dispatcher's RIDEOUT_NAMESPACE"
    )
    executor: Annotated[str, StringConstraints(max_length=50)] | None = Field(
        None, description="one of the dispatcher's RIDEOUT_EXECUTORS; unset: its first"
    )
    labels: Labels = {}
    resources: Resources = Resources()
    timeout_s: Annotated[int, Field(ge=1, le=30 * 86_400)] | None = None

    @model_validator(mode="after")
    def _names_a_program(self) -> Self:
        if not self.command[0]:
            raise ValueError("command[0] is empty")
        return self


class Task(_Strict):
    key: Key
    due_at: Annotated[AwareDatetime, AfterValidator(_in_range)] | None = Field(
        None, description="RFC 3339 with an offset; unset: now"
    )
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    retry_delay_s: Annotated[float, Field(ge=0, le=30 * 86_400)] = 0.0
    spec: Spec


class Submission(_Strict):
    """A run: its key makes a repeated submission harmless."""

    key: Key
    name: Key
    labels: Annotated[dict[Key, Annotated[Text, StringConstraints(max_length=1000)]], Field(max_length=64)] = {}
    tasks: Annotated[list[Task], Field(min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _keys_are_unique(self) -> Self:
        seen: set[str] = set()
        for task in self.tasks:
            if task.key in seen:
                raise ValueError(f"task key {task.key!r} is used twice")
            seen.add(task.key)
        return self

    def digest(self) -> str:
        """The same for the same content, however it was written down."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()

    def rows(self, *, now: datetime, namespace: str, executors: Sequence[str]) -> list[dict[str, Any]]:
        """What `store.submit_once` inserts for each task. Raises UnknownExecutor."""
        return [
            {
                "task_key": task.key,
                "due_at": task.due_at or now,
                "retries": task.retries,
                "retry_delay": task.retry_delay_s,
                "namespace": task.spec.namespace or namespace,
                "executor": _one_of(executors, task),
                "spec": task.spec.model_dump(mode="json", exclude={"namespace", "executor"}, exclude_defaults=True),
            }
            for task in self.tasks
        ]


class UnknownExecutor(ValueError):
    """A task names an executor that this dispatcher does not run."""


def _one_of(executors: Sequence[str], task: Task) -> str:
    named = task.spec.executor or executors[0]
    if named not in executors:
        raise UnknownExecutor(
            f"task {task.key!r} names the executor {named!r}; this dispatcher has {', '.join(executors)}"
        )
    return named
