"""The control plane as child processes: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

All listen on 127.0.0.1. The three clients of the apiserver inside the control plane reach it directly, never through
Toxiproxy: a fault on the lanes' proxy is a fault between them and the API, not inside the API.
The real controller manager and scheduler run because a ResourceQuota does nothing without the one, and a pod waits for
a node as it would anywhere only with the other.
"""

import asyncio
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from chaos.testbed.certs import Authority, KeyPair
from chaos.testbed.controlplane.audit import write_policy
from chaos.testbed.kube import TRANSPORT_ERRORS, Kube, write_kubeconfig
from chaos.testbed.ports import Ports
from chaos.testbed.processes import ManagedProcess, Ready, Supervisor

NODE_NAME = "rideout-node"

# User (CN) and groups (O) of every identity; what they may do is RBAC: built in, or k8s/*-rbac.yaml.
IDENTITIES: dict[str, tuple[str, list[str]]] = {
    "admin": ("rideout:admin", ["system:masters"]),
    "dispatcher": ("rideout:dispatcher", ["rideout:dispatchers"]),
    "probe": ("rideout:probe", ["rideout:probes"]),
    "node": (f"system:node:{NODE_NAME}", ["system:nodes"]),
    "controller-manager": ("system:kube-controller-manager", []),
    "scheduler": ("system:kube-scheduler", []),
}


@dataclass
class ControlPlane:
    """The four processes, started by `start`, and the paths and addresses others need."""

    etcd: ManagedProcess
    apiserver: ManagedProcess
    controller_manager: ManagedProcess
    scheduler: ManagedProcess
    api_port: int
    authority: Authority
    clients: dict[str, KeyPair]
    directory: Path

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.api_port}"

    def kubeconfig(self, identity: str, server: str, label: str) -> Path:
        """A kubeconfig for an identity of IDENTITIES at `server`; `label` tells files of one identity apart."""
        pair = self.clients[identity]
        path = self.directory / f"{identity}-{label}.kubeconfig"
        if path.exists():  # a dispatcher reads its credentials anew when the file changes (R26): leave it alone
            return path
        return write_kubeconfig(path, server, self.authority.pair.certificate, pair.certificate, pair.key)

    async def start(self) -> None:
        """etcd, then the apiserver, then its two clients together; each is ready when this returns."""
        self.etcd.start()
        await self.etcd.wait_ready(30)
        self.apiserver.start()
        await self.apiserver.wait_ready(90)
        for process in (self.controller_manager, self.scheduler):
            process.start()
        await asyncio.gather(self.controller_manager.wait_ready(60), self.scheduler.wait_ready(60))


def define(
    supervisor: Supervisor, binaries: dict[str, Path], ports: Ports, audit_log: Path, directory: Path
) -> ControlPlane:
    """Certificates, kubeconfigs and the four commands; nothing is started yet."""
    authority = Authority(directory / "pki")
    clients = {name: authority.client(name, *subject) for name, subject in IDENTITIES.items()}
    accounts = authority.signing_key("service-accounts")
    ca = authority.pair
    client_port, peer_port, api_port, manager_port, scheduler_port = (ports.take() for _ in range(5))
    etcd_url, api_url = f"http://127.0.0.1:{client_port}", f"https://127.0.0.1:{api_port}"
    trust = ssl.create_default_context(cafile=str(ca.certificate))

    def internal(identity: str) -> Path:
        pair = clients[identity]
        path = directory / f"{identity}.kubeconfig"
        return write_kubeconfig(path, api_url, ca.certificate, pair.certificate, pair.key)

    etcd = supervisor.process(
        "etcd",
        [
            binaries["etcd"], "--name=rideout", f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={etcd_url}", f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}",
            f"--initial-cluster=rideout=http://127.0.0.1:{peer_port}",
            "--log-level=warn", "--quota-backend-bytes=8589934592",
            # Killing etcd loses nothing without fsync, only a crash of the machine does, and then the testbed is
            # gone anyway. With it, a slow disk in CI would decide the suite's figures.
            "--unsafe-no-fsync",
        ],
        ready=_http_ok(f"{etcd_url}/health", None),
    )  # fmt: skip
    serving = authority.server("apiserver")
    apiserver = supervisor.process(
        "kube-apiserver",
        [
            binaries["kube-apiserver"], f"--etcd-servers={etcd_url}", "--bind-address=127.0.0.1",
            f"--secure-port={api_port}", "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # it refuses a loopback address otherwise
            f"--tls-cert-file={serving.certificate}", f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={ca.certificate}", f"--cert-dir={directory / 'apiserver'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={accounts.certificate}", f"--service-account-signing-key-file={accounts.key}",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            "--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=false", "--profiling=false",
            f"--audit-policy-file={write_policy(directory / 'audit-policy.yaml')}", f"--audit-log-path={audit_log}",
            # blocking: a create is answered only after its record was written, so the record is complete.
            "--audit-log-mode=blocking", "--audit-log-maxsize=0",
            # As a well-run control plane stops: it goes on serving for 3 s, then answers 429 while it drains.
            "--shutdown-delay-duration=3s", "--shutdown-send-retry-after=true",
        ],
        ready=_api_ready(internal("admin")),
    )  # fmt: skip
    serving = authority.server("controller-manager-serving")
    manager_config = internal("controller-manager")
    controller_manager = supervisor.process(
        "kube-controller-manager",
        [
            binaries["kube-controller-manager"], f"--kubeconfig={manager_config}",
            f"--authentication-kubeconfig={manager_config}", f"--authorization-kubeconfig={manager_config}",
            "--bind-address=127.0.0.1", f"--secure-port={manager_port}",
            f"--tls-cert-file={serving.certificate}", f"--tls-private-key-file={serving.key}",
            "--leader-elect=false", "--use-service-account-credentials=true",
            f"--service-account-private-key-file={accounts.key}", f"--root-ca-file={ca.certificate}",
            f"--cluster-signing-cert-file={ca.certificate}", f"--cluster-signing-key-file={ca.key}",
            "--kube-api-qps=500", "--kube-api-burst=1000", "--profiling=false",
        ],
        ready=_http_ok(f"https://127.0.0.1:{manager_port}/healthz", trust),
    )  # fmt: skip
    serving = authority.server("scheduler-serving")
    scheduler_config = internal("scheduler")
    scheduler = supervisor.process(
        "kube-scheduler",
        [
            binaries["kube-scheduler"], f"--kubeconfig={scheduler_config}",
            f"--authentication-kubeconfig={scheduler_config}", f"--authorization-kubeconfig={scheduler_config}",
            "--bind-address=127.0.0.1", f"--secure-port={scheduler_port}",
            f"--tls-cert-file={serving.certificate}", f"--tls-private-key-file={serving.key}",
            "--leader-elect=false",
            # At the defaults (50, 100) a backlog of 8,000 pods starved it.
            "--kube-api-qps=1000", "--kube-api-burst=2000", "--profiling=false",
        ],
        ready=_http_ok(f"https://127.0.0.1:{scheduler_port}/healthz", trust),
    )  # fmt: skip
    return ControlPlane(etcd, apiserver, controller_manager, scheduler, api_port, authority, clients, directory)


def _http_ok(url: str, trust: ssl.SSLContext | None) -> Ready:
    """Ready when a GET answers 200."""

    def ask() -> bool:
        handlers = [urllib.request.ProxyHandler({})]  # no proxy from the environment between us and loopback
        opener = urllib.request.build_opener(*handlers, urllib.request.HTTPSHandler(context=trust))
        try:
            with opener.open(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError, ValueError):
            return False

    return lambda: asyncio.to_thread(ask)


def _api_ready(kubeconfig: Path) -> Ready:
    """Ready when /readyz says so to an admin: etcd reachable, informers synced, built-in roles written."""

    async def ask() -> bool:
        try:
            async with Kube.open(kubeconfig) as kube:
                return (await kube.request("GET", "/readyz", deadline_s=2)).status == 200
        except TRANSPORT_ERRORS:
            return False

    return ask
