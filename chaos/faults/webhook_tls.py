"""The webhook's certificate is no longer the one that the apiserver trusts: every TLS handshake with it fails."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from chaos.faults.base import Evidence, Ground, UndoStep
from chaos.faults.webhook import WebhookMode
from chaos.testbed.certs import Authority


class WebhookTls(WebhookMode):
    """A certificate of another authority, as after a rotation that forgot the `caBundle`. Connections that were open
    are cut once, because they would go on working under the certificate they saw."""

    name = "webhook-tls"
    shows = r"x509|tls:|certificate"

    def undo(self, ground: Ground) -> list[UndoStep]:
        listens = {"do": "enable", "control": ground.bed.proxies.control, "proxy": "webhook"}
        return [*super().undo(ground), listens]

    def mode(self, ground: Ground) -> dict[str, Any]:
        stranger = Authority(Path(tempfile.mkdtemp(prefix="stranger-", dir=ground.bed.supervisor.state)))
        pair = stranger.server("webhook")
        return {"mode": "certificate", "certificate": str(pair.certificate), "key": str(pair.key)}

    async def inject(self, ground: Ground) -> Evidence:
        await super().inject(ground)
        await asyncio.to_thread(ground.bed.proxies.disable, "webhook")
        await asyncio.to_thread(ground.bed.proxies.enable, "webhook")
        return {"certificate": "of another authority"}
