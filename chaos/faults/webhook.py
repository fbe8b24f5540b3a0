"""What the faults of the fail-closed webhook share: how its mode is switched back, and how a broken call looks.

A webhook that cannot be called fails the create with 500 InternalError, `failed calling webhook …`: the API could not
take the request (R1, Unavailable). One that answers and denies has refused it (R2, Rejected), whatever code it uses.
"""

import re
from typing import Any, ClassVar

from chaos.faults.asking import CALL_FAILED, FIRED_S, shown
from chaos.faults.base import Evidence, Fault, Ground, UndoStep
from chaos.testbed.kube import Reply

ADMIT: dict[str, Any] = {"mode": "admit"}


class WebhookMode(Fault):
    """A webhook in another mode than "admit". Fired = a create in each lane's namespace failed for it, as `shows`
    (a pattern for the message) says."""

    heal_deadline_s = 60.0
    shows: ClassVar[str] = ""

    def mode(self, ground: Ground) -> dict[str, Any]:
        """The mode, as `chaos.testbed.webhook` takes it."""
        raise NotImplementedError

    def available(self, ground: Ground) -> str | None:
        return None if ground.bed.webhook.alive else "the webhook does not run"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [admit_again(ground)]

    async def inject(self, ground: Ground) -> Evidence:
        return {"mode": await ground.bed.webhook_mode(self.mode(ground))}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        return await shown(ground, lambda reply: call_failed(reply, self.shows), FIRED_S)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        return {"mode": await ground.bed.webhook_mode(ADMIT)}


def admit_again(ground: Ground) -> UndoStep:
    return {
        "do": "call",
        "method": "PUT",
        "url": ground.bed.webhook_admin,
        "body": ADMIT,
        "tls": None,
        "done": "the webhook admits every pod again",
    }


def call_failed(reply: Reply, shows: str = "") -> bool:
    """Whether a create failed because its webhook could not be called, for the reason that the pattern names."""
    message = str(reply.body.get("message", ""))
    is_status = reply.status == 500 and reply.body.get("reason") == "InternalError"
    return is_status and message.startswith(CALL_FAILED) and re.search(shows, message, re.IGNORECASE) is not None
