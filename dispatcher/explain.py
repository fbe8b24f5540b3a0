"""`python -m dispatcher explain`: what the dispatcher makes of an answer of the API, and what it would do next.

Nothing is decided here: the answer goes through `dispatcher.errors` and `dispatcher.rules`, as in the dispatcher.
"""

import json
import re
import select
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

from multidict import CIMultiDict

from dispatcher.errors import Answer, DispatcherError
from dispatcher.rules import Disposition, Fail, Outcome, Place, Policy, ReOffer, Row, Verdict, decide, go_duration

_STDIN_WAIT_S = 5.0
_SHOWN_OFFERS = 7
_HEAD = re.compile(r"HTTP/[\d.]+ +\d{3}\b")


class BadInput(DispatcherError):
    """What was given is no answer; the message is one line that says what is expected."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The same form for `explain` and `preflight`, as JSON and as text."""

    disposition: str
    """As in the rules' table: Placed, Unavailable, Backpressure, Deferred, Rejected."""
    cause: str
    may_exist: bool
    """Whether the pod may exist all the same: the request may have been committed (R3)."""
    rule: str
    next: str

    def as_json(self) -> dict[str, Any]:
        return {
            "disposition": self.disposition,
            "cause": self.cause,
            "may_exist": self.may_exist,
            "rule": self.rule,
            "next": self.next,
        }

    def as_text(self, detail: str = "") -> str:
        lines = [f"{self.disposition}: {self.cause} ({self.rule})"]
        if detail:
            lines.append(f"  the API said: {detail}")
        lines.append("The pod may exist." if self.may_exist else "The pod does not exist.")
        return "\n".join([*lines, f"Next: {self.next}."])


def explain(verdict: Verdict, policy: Policy) -> Explanation:
    """What a verdict means for a row that is offered for the first time."""
    return Explanation(
        verdict.disposition.value.capitalize(), verdict.cause, verdict.may_exist, verdict.rule, _next(verdict, policy)
    )


# What happens next: the rules are asked, offer by offer, as if every answer were like this one.


def _next(verdict: Verdict, policy: Policy) -> str:
    offers = list(_offers(verdict, policy))
    first, (last_s, last) = offers[0][1], offers[-1]
    if isinstance(first, Place):
        return "the pod is recorded, the outage is over, and the row waits for the agent in the pod to report RUNNING"
    times = [at_s for at_s, _ in offers[1:]]
    shown = ", ".join(f"{at_s:g}" for at_s in times[:_SHOWN_OFFERS])
    again = f"offered again at {shown}{' …' if len(times) > _SHOWN_OFFERS else ''} s after this failure"
    parts = ["token and certificates are read anew"] if verdict.stale_credentials else []
    match verdict.disposition:
        case Disposition.BACKPRESSURE:
            wait_s = times[0]
            parts += [f"offered again every {wait_s:g} s, for ever", "no attempt is spent", "a running outage is over"]
        case Disposition.DEFERRED:
            parts += [f"offered again after {times[0]:g} s", "no attempt is spent", "a running outage goes on"]
        case Disposition.UNAVAILABLE if not policy.unavailable_spends_attempts:
            parts += [again, "no attempt is spent", f"the first failure starts a window of {_said(policy.window_s)}"]
        case _:
            parts += [again, f"each spends one of {policy.attempts} attempts", "a running outage is over"]
    if isinstance(last, Fail):
        parts.append(f'if nothing changes, the row fails after {_said(last_s)} as "{last.reason}"')
    return "; ".join(parts)


def _offers(verdict: Verdict, policy: Policy) -> Iterator[tuple[float, Place | ReOffer | Fail]]:
    """(seconds after the first failure, decision) of each offer, until one ends the row; two of what never ends."""
    began = datetime(2000, 1, 1, tzinfo=UTC)
    ends = verdict.disposition in (Disposition.UNAVAILABLE, Disposition.REJECTED)
    row, now = Row(), began
    for _ in range(100_000 if ends else 2):
        decision = decide(row, Outcome(verdict, now, now), policy)
        yield (now - began).total_seconds(), decision
        if not isinstance(decision, ReOffer):
            return
        row = Row(decision.dispatch_attempts, decision.dispatch_unavailable_since)
        now = decision.next_offer_at


def _said(seconds: float) -> str:
    return go_duration(seconds) if seconds >= 1 else f"{seconds:g}s"


# Reading what an operator pastes or pipes.


def answer_from(status: str | None, headers: Sequence[str], body: str | None, stdin: BinaryIO) -> Answer:
    """The answer that the options describe, its body from stdin where no option gives one; without a status all of
    it from stdin.

    :raises BadInput: one line for a person.
    """
    if status is not None:
        text = body if body is not None else _piped(stdin)
        return Answer(_status(status), _headers(_split(header) for header in headers), _bytes(text))
    if headers or body is not None:
        raise BadInput("--header and --body need --status; or pipe the whole answer")
    if stdin.isatty():
        raise BadInput("nothing to explain: give --status, or pipe an answer (see --help)")
    return _from_text(_text(stdin.read()))


def _from_text(text: str) -> Answer:
    if _HEAD.match(text):
        return _from_http(text.replace("\r\n", "\n"))
    try:
        given = json.loads(text)
    except ValueError as error:
        raise BadInput(
            'stdin holds neither JSON like {"status": 500, "headers": {}, "body": …} nor an answer that begins '
            f"with HTTP/1.1 ({error})"
        ) from None
    if not isinstance(given, dict):
        raise BadInput('the JSON on stdin must be an object like {"status": 500, "headers": {}, "body": …}')
    if given.get("kind") == "Status" or given.get("status") == "Failure":
        # A Status on its own, as logs show it; the audit log's `responseStatus` leaves out what it is.
        return Answer(_status(given.get("code")), CIMultiDict(), _bytes({**given, "kind": "Status"}))
    unknown = sorted(set(given) - {"status", "headers", "body"})
    if unknown or "status" not in given:
        what = f"unknown key {unknown[0]!r}" if unknown else 'no "status"'
        raise BadInput(f'{what} in the JSON on stdin; expected {{"status": 500, "headers": {{}}, "body": …}}')
    headers = given.get("headers")
    if headers is None:
        headers = {}
    if not isinstance(headers, dict):
        raise BadInput('"headers" must be an object of names and values')
    return Answer(_status(given["status"]), _headers(headers.items()), _bytes(given.get("body")))


def _from_http(text: str) -> Answer:
    """A whole answer as `curl -i` prints it. Of several (a proxy's, a 100 Continue's) the last one counts."""
    first_line, _, rest = text.partition("\n")
    lines, _, body = ("", "", rest[1:]) if rest.startswith("\n") else rest.partition("\n\n")
    if _HEAD.match(body):
        return _from_http(body)
    headers = _headers(_split(line) for line in lines.splitlines() if line)
    return Answer(_status(first_line.split()[1]), headers, _bytes(body))


def _piped(stdin: BinaryIO) -> str:
    """What stands on stdin, unless it is a terminal or a pipe that nobody writes to."""
    if stdin.isatty():
        return ""
    try:
        ready, _, _ = select.select([stdin], [], [], _STDIN_WAIT_S)
    except (OSError, ValueError):  # not a file that can be waited for
        return _text(stdin.read())
    if not ready:
        print(f"explain: nothing on stdin for {_STDIN_WAIT_S:g} s, so the body is taken as empty", file=sys.stderr)
        return ""
    return _text(stdin.read())


def _text(data: bytes) -> str:
    """Any bytes: what is no UTF-8 comes out of `_bytes` as it went in."""
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _status(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.strip().isdigit():
        value = int(value[:9])
    if isinstance(value, bool) or not isinstance(value, int) or not 100 <= value <= 599:
        raise BadInput(f"the status must be a whole number from 100 to 599, not {value!r}")
    return value


def _split(header: str) -> tuple[str, str]:
    name, colon, value = header.partition(":")
    if not colon or not name.strip():
        raise BadInput(f"a header is written 'Name: value', not {header!r}")
    return name.strip(), value.strip()


def _headers(pairs: Any) -> CIMultiDict[str]:
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in pairs:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, bool) or not isinstance(one, (str, int, float)):
                raise BadInput(f"the value of header {name!r} must be text")
            headers.add(name, str(one))
    return headers


def _bytes(body: object) -> bytes:
    if body is None:
        return b""
    text = body if isinstance(body, str) else json.dumps(body)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a surrogate pair, written out in JSON
        return text.encode("utf-8", "replace")
