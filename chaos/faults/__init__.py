"""The ways to break things, one small file each; a new one is one file and one line here."""

from collections.abc import Callable
from functools import partial

from chaos.errors import UsageError
from chaos.faults.answer_lost import AnswerLost
from chaos.faults.apiserver_kill import ApiserverKill
from chaos.faults.base import Evidence, Fault, Ground, UndoStep
from chaos.faults.control_plane_stop import ControlPlaneStop
from chaos.faults.load_balancer import MaintenancePage, UpstreamGone, UpstreamHangs
from chaos.faults.proxy_off import ProxyOff
from chaos.faults.quota import Quota
from chaos.faults.throttle import Throttle
from chaos.faults.webhook_denies import WebhookDenies
from chaos.faults.webhook_down import WebhookDown
from chaos.faults.webhook_garbage import WebhookGarbage
from chaos.faults.webhook_slow import WebhookSlow
from chaos.faults.webhook_tls import WebhookTls

FAULTS: dict[str, Callable[[], Fault]] = {
    "control-plane-stop": ControlPlaneStop,
    "apiserver-kill": ApiserverKill,
    "proxy-off": ProxyOff,
    "answer-lost": partial(AnswerLost, "closed"),
    "answer-lost-silent": partial(AnswerLost, "silent"),
    "answer-lost-late": partial(AnswerLost, "late"),
    "webhook-down": WebhookDown,
    "webhook-slow": WebhookSlow,
    "webhook-tls": WebhookTls,
    "webhook-garbage": WebhookGarbage,
    "webhook-garbage-500": partial(WebhookGarbage, 500),
    "webhook-garbage-503": partial(WebhookGarbage, 503),
    "webhook-denies": WebhookDenies,
    "webhook-denies-429": partial(WebhookDenies, 429),
    "webhook-denies-500": partial(WebhookDenies, 500),
    "webhook-denies-503": partial(WebhookDenies, 503),
    "throttle": Throttle,
    "quota": Quota,
    "load-balancer-502": UpstreamGone,
    "load-balancer-504": UpstreamHangs,
    "load-balancer-502-page": partial(MaintenancePage, 502),
    "load-balancer-503-page": partial(MaintenancePage, 503),
    "load-balancer-504-page": partial(MaintenancePage, 504),
}

__all__ = ["FAULTS", "Evidence", "Fault", "Ground", "UndoStep", "make", "told"]


def make(name: str) -> Fault:
    """A fault by its name, ready to be injected once. Raises UsageError with the names there are."""
    if name not in FAULTS:
        raise UsageError(f"no fault {name!r}; there are: {', '.join(sorted(FAULTS))}")
    return FAULTS[name]()


def told(evidence: Evidence) -> str:
    """What of a step's evidence a person wants to see while the run goes on."""
    if cause := evidence.get("cause"):
        return f": the probe saw {cause}"
    if commits := evidence.get("commits"):
        return f": {sum(commits.values())} creates committed without an answer"
    return ""
