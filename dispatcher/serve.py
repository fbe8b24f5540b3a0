"""One replica as a process: settings → logs → HTTP → database → the main path, and the way back (R25)."""

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import structlog
import uvicorn
from sqlalchemy.exc import ProgrammingError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher import loop
from dispatcher.api import Services, create_app
from dispatcher.clock import Clock
from dispatcher.database import create_engine
from dispatcher.errors import NoUsableCredentials
from dispatcher.executors import Executor, Executors
from dispatcher.executors.kubernetes import KubernetesExecutor
from dispatcher.executors.limiter import RateLimiter
from dispatcher.executors.pods import KubernetesPods
from dispatcher.executors.subprocess import SubprocessExecutor
from dispatcher.migrate import place
from dispatcher.outage import ApiHealth
from dispatcher.podgc import PodGc
from dispatcher.reaper import Reaper
from dispatcher.settings import Settings
from dispatcher.store import views
from dispatcher.store.recovery import RePlacePolicy
from dispatcher.telemetry import Metrics, configure_logging
from dispatcher.tokens import AttemptTokens
from dispatcher.witness import Observer, OutcomeLog

log = structlog.get_logger(__name__)

_DATABASE_EVERY_S = 1.0
_CONNECTIONS = 2000  # beyond it uvicorn answers 503: an agent asks again


class CannotServe(Exception):
    """The message is one line for a person: what is wrong, and what to do. Nothing was started."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


def serve(settings: Settings, *, unknown: Sequence[str] = ()) -> None:
    """Run one replica until SIGTERM or SIGINT. Raises CannotServe.

    :param unknown: variables that look like settings and are none; said once in the log.
    """
    configure_logging(settings.log_format, settings.log_level)
    if unknown:
        log.warning("settings.unknown", variables=list(unknown))
    address = _may_listen(settings)
    if not settings.signing_keys:
        raise CannotServe(
            "RIDEOUT_SIGNING_KEYS is not set: give all replicas one random key, as from `openssl rand -hex 32`", 64
        )
    with _listening(address) as listener:
        # Not uvloop: where a connection is reset in its TLS handshake, as every one is while a proxied API is down,
        # uvloop 0.23 closes the socket that aiohttp handed it and Python closes that number once more when the
        # socket is collected: by then it may be the database's. `test_executor_event_loop.py` counts the victims.
        asyncio.run(_serve(settings, listener))


async def _serve(settings: Settings, listener: socket.socket) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    clock, metrics = Clock(), Metrics()
    health = ApiHealth(clock, lapses_after_s=2 * (settings.hold_max_s + settings.create_deadline_s))
    tokens = AttemptTokens([key.get_secret_value() for key in settings.signing_keys])
    kubernetes = await _kubernetes(settings, clock, tokens) if "kubernetes" in settings.executors else None
    executor = _executors(settings, clock, tokens, kubernetes)
    outcomes = _outcome_log(settings)
    engine = create_engine(settings)
    leadership = loop.leadership_of(settings, engine, clock)
    services = Services(settings, engine, clock, tokens, metrics, health, leadership, ready=False)
    witness = Observer(metrics=metrics, health=health, replica=settings.replica, outcomes=outcomes)
    server = _Server(
        uvicorn.Config(
            create_app(services),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=5,
        )
    )
    serving = asyncio.create_task(server.serve([listener]))
    serving.add_done_callback(lambda _: stop.set())  # a server that ends by itself takes the process with it
    log.info("dispatcher.started", replica=settings.replica, mode=settings.mode, listen=settings.listen)
    try:
        if await _database(services, clock, stop):
            services.ready = True
            reaper, podgc = _recovery(settings, engine, clock, health, kubernetes)
            await loop.run(
                settings,
                engine,
                executor,
                clock=clock,
                witness=witness,
                stop=stop,
                leadership=leadership,
                reaper=reaper,
                podgc=podgc,
            )
        else:
            await executor.close()
    finally:  # HTTP last: agents are answered while the creates under way come in (R25)
        server.should_exit = True
        await serving
        await engine.dispose()
        if outcomes is not None:
            outcomes.close()
    log.info("dispatcher.stopped", replica=settings.replica)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: stopping has an order, and HTTP is its last step."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _database(services: Services, clock: Clock, stop: asyncio.Event) -> bool:
    """Wait until the database answers with our schema, and read its clock (R23). False: told to stop first."""
    said = ""
    while not stop.is_set():
        try:
            async with services.engine.connect() as connection:
                await views.schema_is_there(connection)
                await clock.sync(connection)
            log.info("database.reached")
            return True
        except ProgrammingError:
            trouble = "its schema is older than this release: run `python -m dispatcher migrate`"
        except (SQLAlchemyError, OSError) as error:
            trouble = " ".join(str(getattr(error, "orig", None) or error).split()) + "; is PostgreSQL up?"
        if trouble != said:
            log.error("database.waiting", database=place(services.settings.database_url), trouble=trouble)
            said = trouble
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _DATABASE_EVERY_S)
    return False


async def _kubernetes(settings: Settings, clock: Clock, tokens: AttemptTokens) -> KubernetesExecutor:
    if settings.kubeconfig is not None and not settings.kubeconfig.is_file():
        raise CannotServe(f"RIDEOUT_KUBECONFIG: there is no file {settings.kubeconfig}")
    executor = KubernetesExecutor(
        clock=clock,
        sign=tokens.sign,
        kubeconfig=settings.kubeconfig,
        agent_command=settings.agent_command,
        dispatchers=settings.advertise_urls,
        deadline_s=settings.create_deadline_s,
        limiter=RateLimiter(settings.rate_limit, settings.rate_burst, settings.rate_wait_s),
        connections=settings.slots + 4,  # the creates, and room for lists and deletes beside them
        instance=settings.instance,
    )
    try:
        await executor.connection.client()  # reads files; it asks no API, which may well be down
    except NoUsableCredentials as error:
        raise CannotServe(" ".join(str(error).split())) from error
    return executor


def _executors(
    settings: Settings, clock: Clock, tokens: AttemptTokens, kubernetes: KubernetesExecutor | None
) -> Executors:
    by_name: dict[str, Executor] = {}
    if kubernetes is not None:
        by_name["kubernetes"] = kubernetes
    if "subprocess" in settings.executors:
        by_name["subprocess"] = SubprocessExecutor(
            clock=clock, sign=tokens.sign, agent_command=settings.agent_command, dispatchers=settings.advertise_urls
        )
    return Executors(clock, by_name)


def _recovery(
    settings: Settings, engine: AsyncEngine, clock: Clock, health: ApiHealth, kubernetes: KubernetesExecutor | None
) -> tuple[Reaper, PodGc | None]:
    pods = (
        KubernetesPods(kubernetes.connection, instance=settings.instance, deadline_s=settings.create_deadline_s)
        if kubernetes is not None
        else None
    )
    reaper = Reaper(
        engine=engine,
        clock=clock,
        pods=pods,
        health=health,
        policy=RePlacePolicy(settings.re_place_s, settings.re_place_max_s),
        lease_s=settings.lease_s,
        placed_timeout_s=settings.placed_timeout_s,
        orphan_run_s=settings.orphan_run_s,
        look_every_s=settings.pod_list_s,
    )
    if pods is None:
        return reaper, None
    podgc = PodGc(
        engine=engine,
        clock=clock,
        pods=pods,
        health=health,
        namespace=settings.namespace,
        finished_ttl_s=settings.finished_pod_ttl_s,
    )
    return reaper, podgc


def _outcome_log(settings: Settings) -> OutcomeLog | None:
    if settings.outcome_log is None:
        return None
    try:
        return OutcomeLog(settings.outcome_log)
    except OSError as error:
        raise CannotServe(f"RIDEOUT_OUTCOME_LOG: cannot write {settings.outcome_log}: {error.strerror}") from error


def _may_listen(settings: Settings) -> tuple[str, int]:
    """The address to bind to; without a token for submitters and operators only a loopback one."""
    host, _, port = settings.listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise CannotServe(f"RIDEOUT_LISTEN must be host:port, not {settings.listen!r}", 64)
    if settings.api_token is None and not _is_loopback(host):
        raise CannotServe(
            f"RIDEOUT_LISTEN is {settings.listen}, but RIDEOUT_API_TOKEN is not set: set the token, "
            "or listen on 127.0.0.1",
            64,
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _listening(address: tuple[str, int]) -> Iterator[socket.socket]:
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise CannotServe(
                f"RIDEOUT_LISTEN: cannot listen on {host}:{port}: {error.strerror}; choose another, or stop what has it"
            ) from error
        yield listener
