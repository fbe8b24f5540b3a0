"""One testbed: everything that stands around a dispatcher in a run, started in order and ended without a trace.

    etcd → kube-apiserver → controller manager, scheduler, node     PostgreSQL     Toxiproxy     webhook

Only the lanes and the probe go through Toxiproxy's proxy "api"; the apiserver goes through its proxy "webhook".
"""

import asyncio
import dataclasses
import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from chaos.errors import ChaosError
from chaos.testbed import manifests, postgres, readiness, statedir, tools
from chaos.testbed.controlplane import local
from chaos.testbed.kube import TRANSPORT_ERRORS, Kube
from chaos.testbed.loadbalancer import LoadBalancer
from chaos.testbed.ports import Ports
from chaos.testbed.postgres import Postgres
from chaos.testbed.processes import ManagedProcess, Supervisor
from chaos.testbed.toxics import Proxy, Toxics

REPOSITORY = Path(__file__).parents[2]
Progress = Callable[[str], None]
# Identities that may be asked for from outside; the control plane's own are not.
IDENTITIES = ("dispatcher", "probe", "admin", "node")


@dataclasses.dataclass(frozen=True)
class Options:
    """What differs between testbeds.

    `in_process`: the node plays the suite's agents itself (quick profile).
    `webhook_timeout_s`: whole seconds, 1 to 30.
    `started_mono`: the run's zero on CLOCK_MONOTONIC, now if None.
    `history`, `ledger`: history.jsonl and ledger.jsonl in the run's directory if None.
    """

    in_process: bool = False
    webhook_timeout_s: int = 10
    started_mono: float | None = None
    history: Path | None = None
    ledger: Path | None = None


class Testbed:
    """A running testbed. Make one with `async with Testbed.start(...)`."""

    __test__ = False  # not a test class, whatever pytest thinks of its name

    def __init__(self, directory: Path, supervisor: Supervisor, ports: Ports, lanes: Sequence[str]) -> None:
        self.directory = directory
        self.supervisor = supervisor
        self.ports = ports
        self.namespaces = {lane: manifests.namespace_of(lane) for lane in lanes}
        self.logs = supervisor.logs
        self.audit_log = directory / "audit.jsonl"
        self.audit_from = 0
        """How much of it (bytes) earlier runs on this testbed have written."""
        self.ledger = directory / "ledger.jsonl"
        self.kubernetes_version = tools.kubernetes_version()
        self.binaries: dict[str, Path] = {}
        self.control_plane: local.ControlPlane
        self.database: Postgres
        self.proxies: Toxics
        self.webhook: ManagedProcess
        self.node: ManagedProcess
        self.api_url_direct = self.api_url = ""
        self.load_balancer: LoadBalancer | None = None
        self.webhook_admin = ""
        """Where the webhook's mode is read and replaced."""

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        directory: Path,
        lanes: Sequence[str] = ("buffered", "tick", "control"),
        progress: Progress = lambda _: None,
        *,
        in_process: bool = False,
        webhook_timeout_s: int = 10,
        started_mono: float | None = None,
        history: Path | None = None,
        ledger: Path | None = None,
    ) -> AsyncIterator["Testbed"]:
        """Build or find the binaries, start everything, apply k8s/, yield; end everything on every way out.

        Leaves `directory`/logs, /audit.jsonl, /history.jsonl and /ledger.jsonl; everything else (data, keys,
        kubeconfigs) lies in a temporary directory and goes. Raises ChaosError with one line for a person.
        """
        options = Options(in_process, webhook_timeout_s, started_mono, history, ledger)
        directory = directory.absolute()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            state = statedir.make()
        except OSError as error:
            raise ChaosError(f"cannot write to {error.filename or directory}: {error.strerror}") from error
        ports, supervisor = Ports(), Supervisor(directory, state)
        try:
            bed = cls(directory, supervisor, ports, lanes)
            bed.binaries = await _binaries(progress)
            began = time.monotonic()
            progress("starting the control plane, PostgreSQL, Toxiproxy, the webhook and the node")
            await bed._start(options)
            progress(f"testbed ready after {time.monotonic() - began:.1f} s; logs: {bed.logs}")
            yield bed
        finally:
            # Blocking, and deliberately not awaited: a second Ctrl-C must not cut the cleaning short. Nothing has to
            # be stopped gently: the data goes, and the audit log is complete up to the last answered request. Only
            # PostgreSQL ends its own children, which would be left as zombies where process 1 reaps none.
            if "postgres" in supervisor.processes:
                supervisor.processes["postgres"].end_now(signal.SIGQUIT, 2)
            supervisor.close()
            ports.close()
            shutil.rmtree(state, ignore_errors=True)

    async def _start(self, options: Options) -> None:
        state = self.supervisor.state
        plane = local.define(self.supervisor, self.binaries, self.ports, self.audit_log, state)
        self.control_plane = plane
        control_port, api_proxy, webhook_proxy, webhook_port, webhook_admin, database_port = (
            self.ports.take() for _ in range(6)
        )
        toxiproxy = self.supervisor.process(
            "toxiproxy",
            [self.binaries["toxiproxy-server"], "-host", "127.0.0.1", "-port", str(control_port)],
            ready=lambda: asyncio.to_thread(self.proxies.alive),
        )
        self.proxies = Toxics(
            toxiproxy,
            control_port,
            [
                Proxy("api", f"127.0.0.1:{api_proxy}", f"127.0.0.1:{plane.api_port}"),
                Proxy("webhook", f"127.0.0.1:{webhook_proxy}", f"127.0.0.1:{webhook_port}"),
            ],
        )
        self.api_url_direct, self.api_url = plane.url, f"https://127.0.0.1:{api_proxy}"
        self.webhook_admin = f"http://127.0.0.1:{webhook_admin}/mode"
        self.webhook = self._define_webhook(webhook_port, webhook_admin)
        self.node = self.define_node(options)
        async with _together() as group:
            group.create_task(self._start_database(database_port))
            group.create_task(self._start_proxies())
            group.create_task(_started(self.webhook, 30))
            group.create_task(plane.start())
        self.node.start()
        async with Kube.open(self.kubeconfig("admin", direct=True)) as admin:
            for lane in self.namespaces:
                for name in manifests.PER_LANE:
                    await manifests.apply(admin, [manifests.for_lane(d, lane) for d in manifests.documents(name)])
            authority = plane.authority.pair.certificate
            await manifests.apply(admin, [manifests.webhook(webhook_proxy, authority, options.webhook_timeout_s)])
            await readiness.settled(self, admin, 60)

    def _define_webhook(self, port: int, admin_port: int) -> ManagedProcess:
        pair = self.control_plane.authority.server("webhook")
        return self.supervisor.process(
            "webhook",
            [
                sys.executable, "-m", "chaos.testbed.webhook", "--listen", str(port), "--admin", str(admin_port),
                "--certificate", pair.certificate, "--key", pair.key,
                "--mode-file", self.supervisor.state / "webhook-mode.json",
            ],
            ready=lambda: readiness.webhook_answers(self),
            cwd=REPOSITORY,
        )  # fmt: skip

    def define_node(self, options: Options) -> ManagedProcess:
        """The node of a run, not started yet. What it has run before it remembers, whatever run that was."""
        self.ledger = options.ledger or self.ledger
        started_mono = time.monotonic() if options.started_mono is None else options.started_mono
        return self.supervisor.process(
            "node",
            [
                sys.executable, "-m", "chaos.testbed.node", "--kubeconfig", self.kubeconfig("node", direct=True),
                "--state-dir", self.supervisor.state / "node",
                "--history", options.history or self.directory / "history.jsonl",
                "--ledger", self.ledger,
                "--kubernetes-version", self.kubernetes_version,
                *(["--in-process"] if options.in_process else []),
            ],
            env={"RIDEOUT_STARTED_MONO": repr(started_mono)},
            ready=lambda: readiness.node_is_ready(self),
            cwd=REPOSITORY,
        )  # fmt: skip

    async def _start_database(self, port: int) -> None:
        self.database = await postgres.start(self.supervisor, port, [f"rideout_{lane}" for lane in self.namespaces])

    async def _start_proxies(self) -> None:
        await _started(self.proxies.process, 15)
        await asyncio.to_thread(self.proxies.create)

    # -- the processes, by the names of the field ---------------------------------------------------------------

    @property
    def etcd(self) -> ManagedProcess:
        return self.control_plane.etcd

    @property
    def apiserver(self) -> ManagedProcess:
        return self.control_plane.apiserver

    @property
    def controller_manager(self) -> ManagedProcess:
        return self.control_plane.controller_manager

    @property
    def scheduler(self) -> ManagedProcess:
        return self.control_plane.scheduler

    @property
    def postgres(self) -> ManagedProcess:
        return self.database.process

    @property
    def toxiproxy_process(self) -> ManagedProcess:
        return self.proxies.process

    # -- how to reach them --------------------------------------------------------------------------------------

    def database_url(self, lane: str, *, driver: str = "postgresql+psycopg") -> str:
        """A URL with user and password; `driver` "postgresql" is what psql reads."""
        return self.database.url(f"rideout_{lane}", driver=driver)

    def kubeconfig(self, identity: str, *, direct: bool = False) -> Path:
        """A kubeconfig for one of IDENTITIES, through the proxy "api" (and the load balancer, if one stands before it)
        unless `direct`. The admin is always direct."""
        if identity not in IDENTITIES:
            raise ChaosError(f"no identity {identity!r}: there are {', '.join(IDENTITIES)}")
        direct = direct or identity in ("admin", "node")
        if not direct and self.load_balancer and (led := self.load_balancer.kubeconfig(identity)):
            return led
        url, label = (self.api_url_direct, "direct") if direct else (self.api_url, "proxied")
        return self.control_plane.kubeconfig(identity, url, label)

    async def wait_api_ready(self, deadline_s: float) -> None:
        """Return once an independent create by the probe, through the proxy, was accepted. Raises ChaosError."""
        await readiness.api_takes_creates(self, deadline_s)

    async def webhook_mode(self, mode: dict[str, Any] | None = None) -> dict[str, Any]:
        """Switch the webhook's mode (see `chaos.testbed.webhook`), or read it with the number of reviews so far."""
        timeout = aiohttp.ClientTimeout(total=5)
        try:
            async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
                call = session.get(self.webhook_admin) if mode is None else session.put(self.webhook_admin, json=mode)
                async with call as answer:
                    said: dict[str, Any] = json.loads(await answer.read())
                    if answer.status != 200:
                        raise ChaosError(f"the webhook refused the mode: {said.get('error')}", log=self.webhook.log)
                    return said
        except TRANSPORT_ERRORS as error:
            raise ChaosError(f"the webhook's admin port does not answer: {error}", log=self.webhook.log) from error


async def _started(process: ManagedProcess, deadline_s: float) -> None:
    process.start()
    await process.wait_ready(deadline_s)


@asynccontextmanager
async def _together() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup whose first error comes out as itself, for a person to read."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _binaries(progress: Progress) -> dict[str, Path]:
    """Found or built, in a thread that ends soon after this coroutine is cancelled."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(tools.find_or_build, progress, stop)
    finally:
        stop.set()
