"""The ways to break things, one small file each; a new one is one file and one line here."""

from collections.abc import Callable
from functools import partial

from chaos.errors import UsageError
from chaos.faults.agent_kill import AgentKill
from chaos.faults.answer_lost import AnswerLost
from chaos.faults.apiserver_crash_loop import ApiserverCrashLoop
from chaos.faults.apiserver_kill import ApiserverKill
from chaos.faults.apiserver_long_stop import ApiserverLongStop
from chaos.faults.apiserver_restart import ApiserverRestart
from chaos.faults.apiserver_without_etcd import ApiserverWithoutEtcd
from chaos.faults.base import Evidence, Fault, Ground, UndoStep
from chaos.faults.black_hole import BlackHole
from chaos.faults.connections_cut import ConnectionsCut
from chaos.faults.connections_reset import ConnectionsReset
from chaos.faults.control_plane_stop import ControlPlaneStop
from chaos.faults.dispatcher_freeze_leader import DispatcherFreezeLeader
from chaos.faults.dispatcher_kill_at_seam import SEAMS, DispatcherKillAtSeam
from chaos.faults.dispatcher_kill_leader import DispatcherKillLeader
from chaos.faults.dispatcher_rolling_restart import DispatcherRollingRestart
from chaos.faults.etcd_kill import EtcdKill
from chaos.faults.etcd_pause import EtcdPause
from chaos.faults.latency import Latency
from chaos.faults.load_balancer import MaintenancePage, UpstreamGone, UpstreamHangs
from chaos.faults.partition import Partition
from chaos.faults.postgres_cut import PostgresCut
from chaos.faults.postgres_restart import PostgresRestart
from chaos.faults.proxy_off import ProxyOff
from chaos.faults.quota import Quota
from chaos.faults.slow_drip import SlowDrip
from chaos.faults.throttle import Throttle
from chaos.faults.webhook_denies import WebhookDenies
from chaos.faults.webhook_down import WebhookDown
from chaos.faults.webhook_garbage import WebhookGarbage
from chaos.faults.webhook_slow import WebhookSlow
from chaos.faults.webhook_tls import WebhookTls

FAULTS: dict[str, Callable[[], Fault]] = {
    "control-plane-stop": ControlPlaneStop,
    "apiserver-restart": ApiserverRestart,
    "apiserver-kill": ApiserverKill,
    "apiserver-long-stop": ApiserverLongStop,
    "apiserver-crash-loop": ApiserverCrashLoop,
    "apiserver-without-etcd": ApiserverWithoutEtcd,
    "etcd-pause": EtcdPause,
    "etcd-kill": EtcdKill,
    "proxy-off": ProxyOff,
    "connections-reset": ConnectionsReset,
    "connections-cut": ConnectionsCut,
    "black-hole": BlackHole,
    "slow-drip": SlowDrip,
    "latency": Latency,
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
    "dispatcher-kill-leader": DispatcherKillLeader,
    "dispatcher-freeze-leader": DispatcherFreezeLeader,
    **{f"dispatcher-kill-{seam}": partial(DispatcherKillAtSeam, seam) for seam in SEAMS},
    "dispatcher-rolling-restart": DispatcherRollingRestart,
    "postgres-restart": PostgresRestart,
    "postgres-cut": PostgresCut,
    "agent-kill": AgentKill,
    "partition": Partition,
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
