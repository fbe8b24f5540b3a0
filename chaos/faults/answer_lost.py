"""Lose the answers of creates that were committed: the request arrives, the 201 never does.

A *downstream* toxic on the proxy swallows what the apiserver says. Requests on connections that were open before it
still arrive and are committed; new connections die in their TLS handshake and commit nothing. So the clients' pools
must be warm when it is injected, and whether it worked is counted in the apiserver's audit log, never assumed.
"""

import asyncio
import json
from collections import Counter
from datetime import datetime
from typing import Any, Literal

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, or_restart

Variant = Literal["closed", "silent", "late"]
TOXICS: dict[Variant, tuple[str, dict[str, int]]] = {
    "closed": ("limit_data", {"bytes": 0}),
    "silent": ("timeout", {"timeout": 0}),
    "late": ("latency", {"latency": 60_000, "jitter": 0}),
}
"""closed: the connection ends instead of an answer. silent: nothing comes, for as long as the toxic stays; removing
it cuts the connections. late: the answer comes after every client's deadline (ms)."""
COMMIT_DEADLINE_S = 10.0
AGENT = b"rideout-dispatcher/"


class AnswerLost(Fault):
    """One of three toxics on the clients' proxy. Fired = a create was committed in every lane's namespace since."""

    heal_deadline_s = 60.0
    name = "answer-lost"

    def __init__(self, variant: Variant = "closed") -> None:
        self.variant = variant
        self.name = self.name if variant == "closed" else f"{self.name}-{variant}"
        self.injected_at = float("inf")
        self.audit_offset = 0
        self.toxic = f"answer-lost-{variant}"

    def undo(self, ground: Ground) -> list[UndoStep]:
        control = ground.bed.proxies.control
        return [{"do": "remove-toxic", "control": control, "proxy": "api", "toxic": self.toxic}]

    async def inject(self, ground: Ground) -> Evidence:
        kind, attributes = TOXICS[self.variant]
        self.audit_offset = ground.bed.audit_log.stat().st_size
        await asyncio.to_thread(ground.bed.proxies.add, "api", self.toxic, kind, "downstream", attributes)
        self.injected_at = ground.now()
        return {"variant": self.variant, "toxic": kind, "at": round(self.injected_at, 6)}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        deadline = ground.now() + COMMIT_DEADLINE_S
        while True:
            committed = self.commits(ground)
            missing = sorted(set(ground.bed.namespaces.values()) - set(committed))
            if not missing:
                return {"at": round(self.injected_at, 6), "commits": dict(committed)}
            if ground.now() > deadline:
                raise ChaosError(
                    f"{self.name} did not fire: no create was committed in {', '.join(missing)} "
                    f"within {COMMIT_DEADLINE_S:g} s of the toxic (were the clients' connections warm?)"
                )
            await asyncio.sleep(0.25)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        committed = self.commits(ground)
        restarted = await or_restart(ground, lambda: self.remove_if_there(ground))
        return {"commits": dict(committed), "proxy_restarted": restarted}

    def remove_if_there(self, ground: Ground) -> None:
        if any(toxic["name"] == self.toxic for toxic in ground.bed.proxies.toxics("api")):
            ground.bed.proxies.remove("api", self.toxic)

    def commits(self, ground: Ground) -> Counter[str]:
        """Committed creates of dispatchers by namespace that the apiserver answered when the toxic was in place: on a
        busy machine a request that came before it may be answered after it."""
        counted: Counter[str] = Counter()
        with ground.bed.audit_log.open("rb") as log:
            log.seek(self.audit_offset)
            for line in log:
                if AGENT in line and line.endswith(b"\n") and is_commit(event := json.loads(line)):
                    answered = datetime.fromisoformat(event["stageTimestamp"]).timestamp()
                    if answered - ground.started_wall > self.injected_at:
                        counted[event["objectRef"]["namespace"]] += 1
        return counted


def is_commit(event: dict[str, Any]) -> bool:
    """Whether an audit event is an accepted create of a dispatcher's pod."""
    return (
        event.get("verb") == "create"
        and event.get("objectRef", {}).get("resource") == "pods"
        and "subresource" not in event.get("objectRef", {})
        and event.get("responseStatus", {}).get("code") == 201
        and str(event.get("userAgent", "")).startswith(AGENT.decode())
    )
