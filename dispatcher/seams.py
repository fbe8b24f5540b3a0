"""Named points of the main path where a test may stop or kill the process. Silent in production.

`RIDEOUT_SEAM=after-create:kill` kills the process the first time it reaches that point, `…:stop` freezes it
(SIGSTOP). The names are an interface of the chaos suite's crash points.
"""

import os
import signal
from enum import StrEnum


class Seam(StrEnum):
    AFTER_CLAIM = "after-claim"
    AFTER_CREATE = "after-create"
    BEFORE_SETTLE = "before-settle"
    IN_SETTLE = "in-settle"
    IN_RE_OFFER = "in-re-offer"


_ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_armed, _, _action = os.environ.get("RIDEOUT_SEAM", "").partition(":")

if _armed and (_armed not in set(Seam) or _action not in _ACTIONS):
    raise SystemExit(f"RIDEOUT_SEAM must be NAME:kill or NAME:stop with NAME one of {', '.join(Seam)}")


def reach(seam: Seam) -> None:
    """Mark that the main path is at `seam`."""
    if _armed and seam == _armed:
        os.kill(os.getpid(), _ACTIONS[_action])
