"""The webhook's address answers with something that is no review: a web server's page, or its error page."""

from typing import Any

from chaos.faults.base import Ground
from chaos.faults.webhook import WebhookMode


class WebhookGarbage(WebhookMode):
    """HTML with the given HTTP status instead of an AdmissionReview. The apiserver counts it as a call that failed."""

    name = "webhook-garbage"

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.name = self.name if status == 200 else f"{self.name}-{status}"

    def mode(self, ground: Ground) -> dict[str, Any]:
        return {"mode": "garbage", "status": self.status}
