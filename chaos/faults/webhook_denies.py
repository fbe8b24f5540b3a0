"""The webhook answers, and denies the pods that carry a label: that is no outage, whatever code it denies with."""

from typing import Any

from chaos.faults.asking import DENIED, FIRED_S, Asking, answers, shown
from chaos.faults.base import Evidence, Ground
from chaos.faults.webhook import WebhookMode
from chaos.testbed.kube import Reply

LABEL, VALUE = "chaos.rideout.dev/denied", "yes"
LABELS = {LABEL: VALUE}
MESSAGE = "denied by the chaos suite"


class WebhookDenies(WebhookMode):
    """Denies labelled pods with a code from 400 up and admits all others. Fired = in each lane's namespace a labelled
    create is denied with that code, and an unlabelled one still accepted."""

    name = "webhook-denies"

    def __init__(self, code: int = 403) -> None:
        self.code = code
        self.name = self.name if code == 403 else f"{self.name}-{code}"

    def mode(self, ground: Ground) -> dict[str, Any]:
        return {"mode": "deny", "label": f"{LABEL}={VALUE}", "code": self.code, "message": MESSAGE}

    async def inject(self, ground: Ground) -> Evidence:
        self.injecting_since = ground.now()
        return await super().inject(ground)

    async def confirm_fired(self, ground: Ground) -> Evidence:
        evidence = await shown(ground, self._denied, FIRED_S, Asking(LABELS))
        spared = await ground.probe.wait_accepted(self.injecting_since, FIRED_S)
        return {**evidence, "code": self.code, "spared": {lane: round(at, 6) for lane, at in spared.items()}}

    async def confirm_healed(self, ground: Ground, deadline_s: float) -> Evidence:
        """A labelled create is accepted in each lane's namespace, and the probe's as ever."""
        admitted = await answers(ground, lambda reply: reply.status == 201, deadline_s, Asking(LABELS))
        evidence = await super().confirm_healed(ground, deadline_s)
        return {**evidence, "labelled": {lane: round(at, 6) for lane, (at, _) in admitted.items()}}

    def _denied(self, reply: Reply) -> bool:
        message = str(reply.body.get("message", ""))
        return reply.status == self.code and message.startswith(DENIED) and "denied the request" in message
