"""The independent probe: real creates by a client that is no admin and shares no code with the dispatcher.

It says when the API is away and when it is back. A dry run would not do: it never reaches etcd. So each probe makes
a Pod in a lane's namespace, through the same proxy and the same webhook as the dispatchers, under its own RBAC
identity, and deletes it again. The Pod carries a scheduling gate, so no scheduler and no node ever looks at it.
Each round asks on a new connection and on a reused one, because an outage shows differently on the two.
"""

import asyncio
import base64
import itertools
import json
import os
import ssl
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp
import yaml

from chaos.errors import ChaosError
from chaos.history import History

Connection = Literal["new", "reused"]
CONNECTIONS: tuple[Connection, ...] = ("new", "reused")
USER_AGENT = "rideout-probe/1"
CLOSELY_S = 0.25
"""Six creates at a time and as many deletes: more would be a load of its own on two cores."""
POD_LABEL = "rideout.dev/probe"


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one probe saw. Times are run-clock seconds; `code` is the HTTP status or None where no answer came."""

    lane: str
    connection: Connection
    started: float
    ended: float
    code: int | None
    cause: str | None

    @property
    def accepted(self) -> bool:
        return self.code == 201


@dataclass(slots=True)
class Credentials:
    """The API server's address and how to reach it, read from a kubeconfig."""

    server: str
    tls: ssl.SSLContext
    headers: dict[str, str]

    @classmethod
    def read(cls, kubeconfig: Path) -> "Credentials":
        """Raises ChaosError where the file cannot be used."""
        try:
            config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
            cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
            tls = ssl.create_default_context()
            ca = _bytes_of(cluster, "certificate-authority", kubeconfig)
            if ca is not None:
                tls = ssl.create_default_context(cadata=ca.decode())
            certificate, key = (_bytes_of(user, name, kubeconfig) for name in ("client-certificate", "client-key"))
            if certificate is not None and key is not None:
                _load_pair(tls, certificate, key)
            headers = {"user-agent": USER_AGENT, "content-type": "application/json"}
            token = user.get("token") or (Path(user["tokenFile"]).read_text() if user.get("tokenFile") else None)
            if token:
                headers["authorization"] = f"Bearer {token.strip()}"
            return cls(cluster["server"].rstrip("/"), tls, headers)
        except (OSError, KeyError, IndexError, TypeError, ValueError, yaml.YAMLError) as error:
            raise ChaosError(f"the probe's kubeconfig {kubeconfig} cannot be used: {error!r}") from error


def _bytes_of(part: Mapping[str, Any], name: str, kubeconfig: Path) -> bytes | None:
    if data := part.get(f"{name}-data"):
        return base64.b64decode(data)
    return (kubeconfig.parent / part[name]).read_bytes() if part.get(name) else None


def _load_pair(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    with tempfile.NamedTemporaryFile() as pair:  # mode 0600; ssl reads pairs from files only
        pair.write(certificate + b"\n" + key)
        pair.flush()
        tls.load_cert_chain(pair.name)


@dataclass
class Probe:
    """Probes each lane's namespace for as long as it is open, and remembers the last sightings.

    `interval_s` is the pause between rounds, `deadline_s` the total time of one create; both in seconds.
    """

    credentials: Credentials
    namespaces: Mapping[str, str]
    history: History
    interval_s: float
    deadline_s: float = 3.0
    last: dict[tuple[str, Connection], Sighting] = field(default_factory=dict)
    seen: deque[Sighting] = field(default_factory=lambda: deque(maxlen=10_000))
    """In the order of their ends; enough for an hour of close probing."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _numbers: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)

    @classmethod
    @asynccontextmanager
    async def watching(
        cls, kubeconfig: Path, namespaces: Mapping[str, str], history: History, *, interval_s: float
    ) -> AsyncIterator["Probe"]:
        """Probe in the background until the block is left; then delete what may still be there."""
        probe = cls(Credentials.read(kubeconfig), dict(namespaces), history, interval_s)
        async with probe._sessions() as sessions:
            rounds = [
                asyncio.create_task(probe._watch(lane, connection, sessions[connection]))
                for lane in namespaces
                for connection in CONNECTIONS
            ]
            try:
                yield probe
            finally:
                for each in rounds:
                    each.cancel()
                await asyncio.gather(*rounds, return_exceptions=True)
                await probe._clean_up(sessions["new"])

    async def wait_refused(self, since: float, deadline_s: float) -> Sighting:
        """The first create that was asked for after `since` (run clock) and not accepted; else ChaosError."""
        found = await self._wait(
            lambda: next((s for s in self._after(since) if not s.accepted), None),
            deadline_s,
            f"no create of the probe was refused within {deadline_s:g} s: the fault is not seen by a client",
        )
        assert isinstance(found, Sighting)
        return found

    async def wait_accepted(self, since: float, deadline_s: float) -> dict[str, float]:
        """When, in each lane's namespace, the first create that was asked for after `since` was accepted."""
        first: dict[str, float] = {}

        def all_lanes() -> dict[str, float] | None:
            for seen in self._after(since):
                if seen.accepted:
                    first.setdefault(seen.lane, seen.ended)
            return first if len(first) == len(self.namespaces) else None

        def missing() -> str:
            waiting = ", ".join(sorted(set(self.namespaces) - set(first)))
            causes = ", ".join(sorted({s.cause for s in self.last.values() if s.cause})) or "no answer yet"
            return f"no create of the probe was accepted for {waiting} within {deadline_s:g} s (last seen: {causes})"

        await self._wait(all_lanes, deadline_s, missing)
        return dict(first)

    def accepting(self, lane: str, connection: Connection) -> bool | None:
        """Whether the last create was accepted; None before the first one."""
        seen = self.last.get((lane, connection))
        return None if seen is None else seen.accepted

    def _after(self, since: float) -> list[Sighting]:
        """What was asked for after `since`, in the order of the answers."""
        return [sighting for sighting in self.seen if sighting.started >= since]

    @contextmanager
    def closely(self) -> Iterator[None]:
        """Probe closely while the block lasts: the moment of a return is as sharp as the pause between two probes."""
        usual, self.interval_s = self.interval_s, min(self.interval_s, CLOSELY_S)
        try:
            yield
        finally:
            self.interval_s = usual

    async def _wait(self, found: Callable[[], Any], deadline_s: float, message: str | Callable[[], str]) -> Any:
        try:
            async with asyncio.timeout(deadline_s):
                with self.closely():
                    async with self._changed:
                        while (result := found()) is None:
                            await self._changed.wait()
                        return result
        except TimeoutError:
            raise ChaosError(message if isinstance(message, str) else message()) from None

    async def _watch(self, lane: str, connection: Connection, session: aiohttp.ClientSession) -> None:
        while True:
            sighting = await self._create(lane, connection, session)
            self.history.write(
                "ok" if sighting.accepted else "fail" if sighting.code else "info",
                "probe",
                "probe",
                t=sighting.ended,  # the pod was deleted since
                lane=lane,
                connection=connection,
                cause=sighting.cause,
                code=sighting.code,
                started=round(sighting.started, 6),
            )
            async with self._changed:
                self.last[(lane, connection)] = sighting
                self.seen.append(sighting)
                self._changed.notify_all()
            await self._pause()

    async def _pause(self) -> None:
        """The pause between rounds, in slices: someone who begins to wait shortens it at once."""
        waited = 0.0
        while waited < self.interval_s:
            await asyncio.sleep(min(0.05, self.interval_s - waited))
            waited += 0.05

    async def _create(self, lane: str, connection: Connection, session: aiohttp.ClientSession) -> Sighting:
        namespace = self.namespaces[lane]
        name = f"probe-{connection}-{os.getpid()}-{self._numbers()}"
        url = f"{self.credentials.server}/api/v1/namespaces/{namespace}/pods"
        started, code, cause = self.history.now(), None, None
        try:
            async with asyncio.timeout(self.deadline_s):
                async with session.post(
                    url, data=_pod(name), headers=self.credentials.headers, allow_redirects=False
                ) as answer:
                    body = await answer.read()
                    code = answer.status
                    cause = None if code == 201 else _cause_of(code, body)
        except TimeoutError:
            cause = f"deadline exceeded after {self.deadline_s:g}s"
        except (aiohttp.ClientError, OSError) as error:
            cause = _cause_of_failure(error)
        ended = self.history.now()
        if code == 201:
            await self._delete(namespace, name, session)
        return Sighting(lane, connection, started, ended, code, cause)

    async def _delete(self, namespace: str, name: str, session: aiohttp.ClientSession) -> None:
        await self._ask_to_delete(f"/{name}?gracePeriodSeconds=0", namespace, session)

    async def _clean_up(self, session: aiohttp.ClientSession) -> None:
        """Delete every probe that is left: a create may have been committed though its answer was lost."""
        for namespace in self.namespaces.values():
            await self._ask_to_delete(f"?labelSelector={POD_LABEL}&gracePeriodSeconds=0", namespace, session)

    async def _ask_to_delete(self, which: str, namespace: str, session: aiohttp.ClientSession) -> None:
        """One request, bounded; it may fail, for the API may be away."""
        url = f"{self.credentials.server}/api/v1/namespaces/{namespace}/pods{which}"
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(self.deadline_s):
                async with session.delete(url, headers=self.credentials.headers) as answer:
                    await answer.read()

    @asynccontextmanager
    async def _sessions(self) -> AsyncIterator[dict[Connection, aiohttp.ClientSession]]:
        tls = self.credentials.tls
        no_limit = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls, force_close=True), timeout=no_limit, trust_env=False
            ) as new,
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls, keepalive_timeout=90), timeout=no_limit, trust_env=False
            ) as reused,
        ):
            yield {"new": new, "reused": reused}


def _pod(name: str) -> bytes:
    """A Pod that will never run: its scheduling gate is nobody's to open."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {POD_LABEL: "true"}},
        "spec": {
            "schedulingGates": [{"name": "rideout.dev/probe"}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "probe", "image": "rideout.invalid/probe"}],
        },
    }
    return json.dumps(pod).encode()


def _cause_of(code: int, body: bytes) -> str:
    """A short cause of an answer: its code, its Status' reason, and the message's beginning for people."""
    try:
        status = json.loads(body)
        return f"{code} {status.get('reason') or 'without reason'}: {str(status.get('message'))[:160]}"
    except (ValueError, AttributeError):
        return f"{code} without a Status: {body[:80]!r}"


def _cause_of_failure(error: BaseException) -> str:
    inner = getattr(error, "os_error", None) or error
    return f"{type(error).__name__} ({type(inner).__name__})" if inner is not error else type(error).__name__
