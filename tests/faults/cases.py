"""The public reports of `tests/cases/create_outcomes.json` that are answers to a create, spelt out.

Each case's own `http` is read from the file. What its `given`, `expect` and `note` describe in words besides is
written down here: variants (one create) and sequences (several, in order).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dispatcher.rules import Disposition
from tests.faults.answers import JSON, created, http, pod, status
from tests.faults.server import Request

FILE = Path(__file__).parents[1] / "cases" / "create_outcomes.json"
CASES: dict[str, dict[str, Any]] = {case["id"]: case for case in json.loads(FILE.read_text())}

PLACED, UNAVAILABLE = Disposition.PLACED, Disposition.UNAVAILABLE
BACKPRESSURE, REJECTED = Disposition.BACKPRESSURE, Disposition.REJECTED

TEXT = {"Content-Type": "text/plain; charset=utf-8"}
HTML = {"Content-Type": "text/html"}
_NAME_IN_THE_FILE = "task-7-e3"

Build = Callable[[Request], bytes]


@dataclass(frozen=True, slots=True)
class Step:
    """One create: what the API answers and what that has to mean."""

    answer: Build
    expect: Disposition


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    steps: tuple[Step, ...]


def step(code: int, headers: Any, body: Any, expect: Disposition, **how: Any) -> Step:
    return Step(lambda _: http(code, headers, body, **how), expect)


def one(name: str, code: int, headers: Any, body: Any, expect: Disposition, **how: Any) -> Variant:
    return Variant(name, (step(code, headers, body, expect, **how),))


def from_file(case_id: str, expect: Disposition) -> Step:
    """The case's own `http`, its pod under the name that was asked for (names are random, R17)."""
    answer = CASES[case_id]["http"]

    def build(request: Request) -> bytes:
        body = answer["body"] if isinstance(answer["body"], str) else json.dumps(answer["body"])
        return http(answer["status"], answer["headers"], body.replace(_NAME_IN_THE_FILE, request.pod_name))

    return Step(build, expect)


def forbidden(text: str, **details: Any) -> dict[str, Any]:
    return status(403, "Forbidden", f'pods "p" is forbidden: {text}', details={"name": "p", "kind": "pods", **details})


def call_failed(text: str) -> dict[str, Any]:
    cause = f'failed calling webhook "w.example.test": {text}'
    return status(500, "InternalError", f"Internal error occurred: {cause}", details={"causes": [{"message": cause}]})


def denied(text: str, code: int, reason: str | None = None) -> dict[str, Any]:
    return status(code, reason, f'admission webhook "w.example.test" denied the request{text}')


PLACE = Step(created, PLACED)
QUOTA = step(403, JSON, forbidden("exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5"), BACKPRESSURE)
ETCD = step(500, JSON, status(500, None, "etcdserver: request timed out"), UNAVAILABLE)
POLICY = "ValidatingAdmissionPolicy 'p.example.test' with binding 'b.example.test' denied request: no"

VARIANTS: dict[str, list[Variant]] = {
    "C01": [
        one(f"ending {ending!r}", 500, JSON, denied(ending, 500), REJECTED)
        for ending in (": a message", ": Forbidden", " without explanation", ": over\ntwo lines")
    ],
    "C02": [
        one("400 without a reason", 400, JSON, denied(": no", 400), REJECTED),
        one("201 that is a denial", 201, JSON, denied(": no", 201), REJECTED),
    ],
    "C03": [
        one(f"{code} {reason}", code, JSON, denied(": maintenance", code, reason), REJECTED)
        for code in (400, 403, 429, 500, 502, 503, 504)
        for reason in (
            None,
            "TooManyRequests",
            "ServiceUnavailable",
            "Timeout",
            "InternalError",
            "back on Monday, 8:00",
        )
    ],
    "C05": [
        one(
            "a call failure that quotes a denial",
            500,
            JSON,
            call_failed('admission webhook "b" denied the request: no'),
            UNAVAILABLE,
        ),
        one(
            "a call failure that quotes a denial, without a reason",
            500,
            JSON,
            status(
                500,
                None,
                'Internal error occurred: failed calling webhook "a": admission webhook "b" denied the request',
            ),
            UNAVAILABLE,
        ),
    ],
    "C06": [
        one("no endpoints", 500, JSON, call_failed('no endpoints available for service "fence"'), UNAVAILABLE),
    ],
    "C08": [
        one("expired", 500, JSON, call_failed("x509: certificate has expired or is not yet valid"), UNAVAILABLE),
    ],
    "C13": [
        one("localhost", 500, JSON, call_failed('Post "https://localhost:5443/": connection refused'), UNAVAILABLE),
    ],
    "C14": [
        Variant("interleaved", (PLACE, from_file("C14", UNAVAILABLE), PLACE, from_file("C14", UNAVAILABLE), PLACE)),
    ],
    "C15": [
        one("422", 422, JSON, status(422, "Invalid", f'pods "p" is forbidden: {POLICY}'), REJECTED),
        one("413", 413, JSON, status(413, "RequestEntityTooLarge", f'pods "p" is forbidden: {POLICY}'), REJECTED),
        one("403", 403, JSON, forbidden(POLICY), REJECTED),
    ],
    "C18": [
        one(text, 500, JSON, status(500, None, text), UNAVAILABLE)
        for text in (
            "etcdserver: too many requests",
            "etcdserver: no leader",
            "etcdserver: mvcc: database space exceeded",
        )
    ],
    "C19": [Variant("then a new name, so no 409", (from_file("C19", UNAVAILABLE), PLACE))],
    "C21": [
        one("500 from etcd", 500, JSON, status(500, None, "etcdserver: request is too large"), UNAVAILABLE),
        one(
            "500 from gRPC",
            500,
            JSON,
            status(500, None, "rpc error: code = ResourceExhausted desc = trying to send message larger than max"),
            UNAVAILABLE,
        ),
    ],
    "C22": [one("413 empty", 413, (), b"", REJECTED)],
    "C25": [
        Variant("201, then 429", (PLACE, from_file("C25", BACKPRESSURE))),
        one(
            "503 in flight",
            503,
            {**JSON, "Retry-After": "1"},
            status(503, "ServiceUnavailable", "apiserver is shutting down"),
            UNAVAILABLE,
        ),
    ],
    "C30": [
        one(
            "insufficient quota",
            403,
            JSON,
            forbidden("insufficient quota to match these scopes: [{PriorityClass In [high]}]"),
            REJECTED,
        ),
        one(
            "a quota of something else",
            403,
            JSON,
            status(403, "Forbidden", 'x "p" is forbidden: exceeded quota: q'),
            REJECTED,
        ),
        one("quoted further in", 403, JSON, forbidden('w says: pods "p" is forbidden: exceeded quota: q'), REJECTED),
        one("no Status", 403, TEXT, 'pods "p" is forbidden: exceeded quota: q, requested: pods=1', REJECTED),
        one(
            "quota text under 422",
            422,
            JSON,
            status(422, "Invalid", 'pods "p" is forbidden: exceeded quota: q, '),
            REJECTED,
        ),
    ],
    "C32": [
        one(
            "cluster-wide",
            409,
            JSON,
            status(
                409, "Conflict", "modified", details={"kind": "clusterresourcequotas", "group": "quota.openshift.io"}
            ),
            REJECTED,
        ),
    ],
    "C34": [Variant("five 500, then the leaked quota", (*([ETCD] * 5), from_file("C34", BACKPRESSURE)))],
    "C37": [
        one("JSON without a kind", 429, JSON, {"error": "slow down"}, BACKPRESSURE),
        one("JSON of a gateway", 429, JSON, {"kind": "Error", "code": 429, "message": "Forbidden"}, BACKPRESSURE),
        one("Retry-After", 429, {**TEXT, "Retry-After": "7"}, "Too many requests", BACKPRESSURE),
        one("empty", 429, (), b"", BACKPRESSURE),
        one("etcd's twin", 500, JSON, status(500, None, "etcdserver: too many requests"), UNAVAILABLE),
        one("reason under another code", 503, JSON, status(503, "TooManyRequests", "wait"), BACKPRESSURE),
    ],
    "C39": [Variant("until RBAC is synced", (from_file("C39", REJECTED), from_file("C39", REJECTED), PLACE))],
    "C42": [
        Variant("then the new token", (from_file("C42", REJECTED), PLACE)),
        one("without a Status", 401, HTML, "<html>sign in</html>", REJECTED),
    ],
    "C43": [
        Variant("every third", (PLACE, PLACE, from_file("C43", REJECTED), PLACE, PLACE, from_file("C43", REJECTED)))
    ],
    "C45": [
        Variant(
            "then the namespace is gone",
            (
                from_file("C45", REJECTED),
                step(404, JSON, status(404, "NotFound", 'namespaces "jobs" not found'), REJECTED),
            ),
        )
    ],
    "C46": [
        Variant(
            "both faces, then it exists",
            (from_file("C46", REJECTED), step(404, TEXT, "404 page not found", REJECTED), PLACE),
        )
    ],
    "C47": [
        one("403 from a firewall", 403, HTML, "<html>Request blocked</html>", REJECTED),
        one("200 from a portal", 200, HTML, "<html>Welcome</html>", UNAVAILABLE),
        one("405", 405, TEXT, "method not allowed", REJECTED),
        one("415", 415, TEXT, "", REJECTED),
        one("400", 400, HTML, "<html>Bad Request</html>", REJECTED),
        one("418", 418, TEXT, "short and stout", REJECTED),
    ],
    "C48": [
        *(one(str(code), code, {"Location": "/login"}, b"", REJECTED) for code in (300, 301, 303, 304, 305, 307, 308)),
        one("302 without a Location", 302, (), b"", REJECTED),
        one("307 to another host", 307, {"Location": "https://login.example.test/"}, b"", REJECTED),
        one("200 HTML", 200, HTML, "<html>log in</html>", UNAVAILABLE),
        Variant("200 with a Pod", (Step(lambda request: http(200, JSON, pod(request)), UNAVAILABLE),)),
        Variant("202 with a Pod", (Step(lambda request: http(202, JSON, pod(request)), UNAVAILABLE),)),
        one("201 empty", 201, JSON, b"", UNAVAILABLE),
        one("201 {}", 201, JSON, b"{}", UNAVAILABLE),
        one("201 Status Success", 201, JSON, {"kind": "Status", "apiVersion": "v1", "status": "Success"}, UNAVAILABLE),
        Variant(
            "201 cut, honest length", (Step(lambda request: http(201, JSON, created(request)[-90:-9]), UNAVAILABLE),)
        ),
        Variant("201 without a uid", (Step(lambda request: http(201, JSON, pod(request, uid="")), UNAVAILABLE),)),
        Variant("201 uid null", (Step(lambda request: http(201, JSON, pod(request, uid=None)), UNAVAILABLE),)),
        Variant(
            "201 of another pod", (Step(lambda request: http(201, JSON, pod(request, name="other")), UNAVAILABLE),)
        ),
        one("201 PodList", 201, JSON, {"kind": "PodList", "metadata": {"uid": "u"}}, UNAVAILABLE),
        one("204", 204, (), b"", UNAVAILABLE),
    ],
    "C49": [
        one(text, 403, JSON, forbidden(text), REJECTED)
        for text in (
            "no PriorityClass with name x was found",
            'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
        )
    ],
    "C52": [
        one("504 HTML", 504, HTML, "<html>504 Gateway Time-out</html>", UNAVAILABLE),
        one("503 HTML", 503, HTML, "<html>503</html>", UNAVAILABLE),
        *(one(f"{code} empty", code, (), b"", UNAVAILABLE) for code in (500, 502, 503, 504, 520, 599)),
        one("502 text", 502, TEXT, "upstream connect error", UNAVAILABLE),
        one("503 foreign JSON", 503, JSON, {"message": "no healthy upstream"}, UNAVAILABLE),
    ],
    "C57": [
        Variant(
            "alternating",
            tuple(
                [step(503, JSON, status(503, "ServiceUnavailable"), UNAVAILABLE), from_file("C57", BACKPRESSURE)] * 3
            ),
        )
    ],
    "C70": [
        Variant(
            "octet-stream",
            (Step(lambda request: http(201, {"Content-Type": "application/octet-stream"}, pod(request)), PLACED),),
        ),
        Variant("no content type", (Step(lambda request: http(201, (), pod(request)), PLACED),)),
        Variant(
            "fields of no known type",
            (Step(lambda request: http(201, JSON, {**pod(request), "spec": 7, "status": [None]}), PLACED),),
        ),
    ],
    "C75": [
        Variant(
            "500, 500, 500, 504, 201",
            (
                *([step(500, JSON, status(500, "InternalError", "x"), UNAVAILABLE)] * 3),
                from_file("C75", UNAVAILABLE),
                PLACE,
            ),
        )
    ],
}

MAIN: dict[str, Disposition] = {
    "C05": REJECTED,
    "C21": REJECTED,
    "C25": BACKPRESSURE,
    "C30": BACKPRESSURE,
    "C48": REJECTED,
    "C57": BACKPRESSURE,
}
"""What the file's own `http` means, where its `expect` speaks of several answers."""

SOCKETS = frozenset({"C55", "C56", "C60", "C62", "C64", "C67", "C68", "C71", "C72", "C76"})
"""No HTTP answer: tested in `test_executor_transport.py` and beside it, under their ids."""
LIMITER = frozenset({"C38", "C80"})
OUTAGES = frozenset({"C09", "C57", "C74"})
"""Longer than a window: `test_rules_outages.py`, with the verdicts of real answers."""
NOT_A_CREATE = frozenset({"C77", "C78", "C79", "C81", "C82", "C85", "C87", "C88", "C89", "C91"})
"""Of lists, databases, agents and clocks: in the simulation and integration tests, under their ids."""


def variants() -> list[tuple[str, Variant]]:
    """(case id, variant) of every HTTP answer, the file's own first."""
    found: list[tuple[str, Variant]] = []
    for case_id, case in CASES.items():
        if case["http"] is not None and case_id not in NOT_A_CREATE and case_id not in SOCKETS:
            expect = MAIN.get(case_id) or Disposition(case["expect"].lower())
            found.append((case_id, Variant("as reported", (from_file(case_id, expect),))))
        found += [(case_id, variant) for variant in VARIANTS.get(case_id, [])]
    return found
