"""What each class of fault must lead to: the table of R1 to R3, read from the fault's side.

A fault whose effect was never met by an offer proves nothing about dispositions, so each names the disposition that
at least one offer of every lane must have had under it, and what its cause may say. The causes are the dispatcher's
own words (R4: short and typed), hence the patterns are wide; that a cause names the code that was really answered is
checked against the audit log, for every single offer.
"""

import re
from dataclasses import dataclass

from chaos.events import Fault, FaultClass


@dataclass(frozen=True, slots=True)
class Expectation:
    disposition: str
    cause: re.Pattern[str]
    may_exist: bool | None = None
    """Whether the outcome has to say that the pod may have been made; None for either."""


TRANSPORT = r"refused|reset|closed|disconnect|broke|cut|eof|tls|handshake|deadline|timeout|timed out|lost|connect"
SERVER_ERROR = r"^5\d\d\b|webhook unreachable"
ANY_OUTAGE = Expectation("Unavailable", re.compile(f"{TRANSPORT}|{SERVER_ERROR}", re.IGNORECASE))

BY_NAME: tuple[tuple[str, Expectation], ...] = (
    (r"^proxy-off|refused", Expectation("Unavailable", re.compile(r"refused", re.IGNORECASE), may_exist=False)),
    (r"webhook-denie", Expectation("Rejected", re.compile(r"denied", re.IGNORECASE), may_exist=False)),
    (r"^webhook", Expectation("Unavailable", re.compile(r"^webhook unreachable$"))),
    (r"black-hole|drip", Expectation("Unavailable", re.compile(r"deadline|timeout", re.IGNORECASE))),
    *((f"load-balancer-{code}", Expectation("Unavailable", re.compile(rf"^{code}\b"))) for code in (502, 503, 504)),
    (r"throttle", Expectation("Backpressure", re.compile(r"^429\b"), may_exist=False)),
    (r"quota", Expectation("Backpressure", re.compile(r"^403\b"), may_exist=False)),
)
BY_CLASS: dict[FaultClass, Expectation] = {
    FaultClass.OUTAGE: ANY_OUTAGE,
    FaultClass.ANSWER_LOST: Expectation("Unavailable", re.compile(TRANSPORT, re.IGNORECASE), may_exist=True),
    FaultClass.DENIAL: Expectation("Rejected", re.compile(r".")),
    FaultClass.PRESSURE: Expectation("Backpressure", re.compile(r".")),
    FaultClass.SLOW: Expectation("Placed", re.compile(r"")),
}


def expectation_of(fault: Fault) -> Expectation | None:
    """What the fault must lead to; None where it is not aimed at creates (database, dispatcher, node)."""
    spelled = fault.name.replace("_", "-")
    named = next((one for pattern, one in BY_NAME if re.search(pattern, spelled)), None)
    return named if named is not None else BY_CLASS.get(fault.kind)
