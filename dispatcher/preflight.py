"""`python -m dispatcher preflight`: would the API take our creates? What a person runs before going live.

One server-side dry run of a create, through the executor and the classification that the dispatcher uses; a
review of the rights it needs; and whether the namespace has a LimitRange. A dry run passes authentication,
authorization, admission and quota, but it never reaches etcd: it cannot tell whether the API can *store* a pod.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from dispatcher.errors import Answer, classify_answer, classify_exception
from dispatcher.executors import Attempt
from dispatcher.executors.kubernetes import KubernetesExecutor
from dispatcher.executors.limiter import RateLimiter
from dispatcher.explain import Explanation, explain
from dispatcher.rules import Disposition, Verdict
from dispatcher.settings import Settings

RIGHTS: tuple[tuple[str, str, bool], ...] = (
    ("create", "pods", True),
    ("list", "pods", True),  # R20: a lost pod is found by a complete list
    ("delete", "pods", True),  # R22
    ("get", "pods", False),  # for the person who looks after it
    ("watch", "pods", False),
    ("list", "limitranges", False),
)
"""(verb, resource, whether the dispatcher cannot do its work without)."""

_NO_LIMIT_RANGE = (
    "while etcd is away, an API server refuses creates in a namespace without any LimitRange as 403 (LimitRanger "
    "looks it up live); by R3 that spends attempts and ends windows, so tasks can fail in an outage that they "
    "would ride out. An empty one is enough: kubectl apply -f k8s/tasks-namespace.yaml"
)
_PASSED = (
    "a real create should be accepted: start the dispatcher (a dry run passes admission and quota, but it does not "
    "reach etcd)"
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at besides the create."""

    name: str
    passed: bool | None
    """None: it could not be looked at."""
    needed: bool
    """Whether a `False` must keep a person from going live."""
    text: str
    """What is missing and what to do, in words."""


@dataclass(frozen=True, slots=True)
class Report:
    explanation: Explanation
    detail: str
    checks: tuple[Check, ...]

    @property
    def accepted(self) -> bool:
        return self.explanation.disposition == Disposition.PLACED.value.capitalize()

    @property
    def ready(self) -> bool:
        """The create was accepted, and no right that the dispatcher needs is refused."""
        return self.accepted and not any(check.needed and check.passed is False for check in self.checks)

    @property
    def missing(self) -> list[str]:
        return [f"{check.name}: {check.text}" for check in self.checks if check.passed is False]

    def as_json(self) -> dict[str, Any]:
        checks = [
            {"name": check.name, "passed": check.passed, "needed": check.needed, "text": check.text}
            for check in self.checks
        ]
        return {**self.explanation.as_json(), "ready": self.ready, "missing": self.missing, "checks": checks}

    def as_text(self) -> str:
        marks = {True: "ok     ", False: "MISSING", None: "unknown"}
        lines = [self.explanation.as_text(self.detail), ""]
        if not self.accepted and all(check.passed is None for check in self.checks):
            return "\n".join([*lines, "nothing else could be looked at", "", "not ready"])
        for check in self.checks:
            lines.append(f"{marks[check.passed]}  {check.name}" + ("" if check.passed else f": {check.text}"))
        return "\n".join([*lines, "", "ready" if self.ready else "not ready"])


async def preflight(settings: Settings, *, namespace: str, spec: Mapping[str, Any]) -> Report:
    """Ask the configured API. Never raises for what the outside does.

    :param spec: a task's spec: the pod is built from it as the dispatcher would.
    """
    executor = _executor(settings)
    deadline_s = settings.create_deadline_s
    try:
        create = asyncio.create_task(_dry_run(executor, namespace, spec))
        checks = await asyncio.gather(
            *(_may(executor, namespace, *right, deadline_s) for right in RIGHTS),
            _limit_range(executor, namespace, deadline_s),
        )
        verdict = await create
    finally:
        await executor.close()
    return Report(_explained(verdict, namespace, settings, checks), verdict.detail, tuple(checks))


class _WallClock:
    """Preflight knows no database; nothing here is compared with a row."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def _executor(settings: Settings) -> KubernetesExecutor:
    return KubernetesExecutor(
        clock=_WallClock(),
        sign=lambda _row, _epoch: "preflight",
        kubeconfig=settings.kubeconfig,
        agent_command=settings.agent_command,
        dispatchers=settings.advertise_urls,
        deadline_s=settings.create_deadline_s,
        limiter=RateLimiter(0, 1, 0),
        connections=len(RIGHTS) + 2,
        instance=settings.instance,
        dry_run=True,
    )


async def _dry_run(executor: KubernetesExecutor, namespace: str, spec: Mapping[str, Any]) -> Verdict:
    attempt = Attempt(
        row_id=0, epoch=0, try_number=1, run_name="preflight", task_key="check", namespace=namespace, spec=dict(spec)
    )
    return (await executor.create(attempt)).verdict


async def _may(
    executor: KubernetesExecutor, namespace: str, verb: str, resource: str, needed: bool, deadline_s: float
) -> Check:
    """Ask the API about our own right (SelfSubjectAccessReview, which every authenticated user may)."""
    name = f"may {verb} {resource} in {namespace}"
    attributes = {"namespace": namespace, "verb": verb, "group": "", "resource": resource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    found = await _ask(executor, "POST", path, review, deadline_s)
    answered = found.get("status") if isinstance(found, dict) else None
    allowed = answered.get("allowed") if isinstance(answered, dict) else None
    if not isinstance(allowed, bool):
        return Check(name, None, needed, found if isinstance(found, str) else "the API did not say")
    remedy = (
        f"grant `{verb}` on `{resource}` in {namespace} to this identity: kubectl apply -f k8s/dispatcher-rbac.yaml"
    )
    return Check(name, allowed, needed, remedy)


async def _limit_range(executor: KubernetesExecutor, namespace: str, deadline_s: float) -> Check:
    name = f"a LimitRange in {namespace}"
    found = await _ask(
        executor, "GET", f"/api/v1/namespaces/{quote(namespace, safe='')}/limitranges?limit=1", None, deadline_s
    )
    items = found.get("items") if isinstance(found, dict) else None
    if isinstance(found, str) or not isinstance(items, list):
        return Check(name, None, False, found if isinstance(found, str) else "the API did not say")
    return Check(name, bool(items), False, _NO_LIMIT_RANGE)


async def _ask(
    executor: KubernetesExecutor, method: str, path: str, body: dict[str, Any] | None, deadline_s: float
) -> dict[str, Any] | str:
    """The object that was answered, or in words why there is none."""
    try:
        client = await executor.connection.client()
        answer = await client.request(method, path, body, deadline_s=deadline_s)
        found = json.loads(answer.body) if answer.status in (200, 201) else None
    except Exception as error:
        verdict = classify_exception(error, sent=True)
        return f"could not be looked at: {verdict.cause if verdict else type(error).__name__}"
    return found if isinstance(found, dict) else f"could not be looked at: {_refusal(answer)}"


def _refusal(answer: Answer) -> str:
    verdict = classify_answer(answer)
    return f"{verdict.cause}: {verdict.detail}" if verdict.detail else verdict.cause


def _explained(verdict: Verdict, namespace: str, settings: Settings, checks: Iterable[Check]) -> Explanation:
    explanation = explain(verdict, settings.rules)
    if verdict.disposition is Disposition.PLACED:
        return replace(explanation, may_exist=False, next=_PASSED)
    may_not = [check for check in checks if check.passed is False and check.name.startswith("may create")]
    remedy = may_not[0].text if may_not else _remedy(verdict, namespace)
    return replace(explanation, may_exist=False, next=f"{remedy}; the dispatcher would do this: {explanation.next}")


def _remedy(verdict: Verdict, namespace: str) -> str:
    """What a person can do about it, by what is typed in the verdict."""
    match verdict.cause:
        case "no usable credentials":
            return "set RIDEOUT_KUBECONFIG to a kubeconfig that this process can read"
        case "no usable API address":
            return "correct `server` in the kubeconfig"
        case "server certificate does not verify":
            return (
                "the kubeconfig's certificate-authority is not the one that signed the API's certificate for this name"
            )
        case "401" | "401 Unauthorized":
            return "the API does not know this identity: renew the token or client certificate in the kubeconfig"
        case "404" | "404 NotFound":
            return f"no namespace {namespace} (kubectl create namespace {namespace}), or the address is not an API's"
        case "403 quota":
            return f"a ResourceQuota of {namespace} is used up: tasks wait until there is room"
        case "webhook unreachable":
            return "a fail-closed admission webhook cannot be called: no pod can be created until it answers"
        case "spec refused by the client":
            return "correct the task's spec"
    if "does not support dry run" in verdict.detail:
        return (
            "a webhook that answers no dry runs stands before pods: preflight cannot see past it; create a pod by hand"
        )
    if verdict.rule == "R2":
        return "an admission webhook refuses this pod: change the task's spec, or ask those who run the webhook"
    match verdict.disposition:
        case Disposition.UNAVAILABLE:
            return "the API cannot take creates: look at the API server, what stands before it, and its address"
        case Disposition.BACKPRESSURE:
            return "the API throttles: try again"
        case _:
            return "the API refuses this pod: see what it said"
