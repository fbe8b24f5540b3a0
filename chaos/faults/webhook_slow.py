"""The webhook answers later than the apiserver waits: each create hangs for `timeoutSeconds`, then fails."""

from typing import Any

from chaos.faults.base import Ground
from chaos.faults.webhook import WebhookMode

DELAY_S = 35.0
"""Longer than the longest timeout a webhook may have (30 s)."""


class WebhookSlow(WebhookMode):
    """A webhook that admits after 35 s. The create's own deadline is longer than the webhook's timeout (15 s against
    10 s), so that the client sees the apiserver's answer, not its own deadline."""

    name = "webhook-slow"
    shows = r"deadline exceeded|timeout"

    def mode(self, ground: Ground) -> dict[str, Any]:
        return {"mode": "slow", "delay_s": DELAY_S}
