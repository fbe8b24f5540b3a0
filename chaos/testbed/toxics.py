"""Toxiproxy behind one thin adapter in which every call ends.

`toxiproxy-python` 0.1.1 has no timeouts and keeps the server's address in a class attribute, which two testbeds in one
process would share; and removing toxics under traffic can hang Toxiproxy's control API (an open issue of theirs). So
each call goes through an address of our own, in a thread, under a total deadline. When it passes, `restart` is the
last resort: the process is killed, started again and given its proxies anew, without toxics.
"""

import concurrent.futures
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import requests
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from chaos.errors import ChaosError
from chaos.testbed.processes import ManagedProcess

T = TypeVar("T")
DATABASE_PROXY = "database"
"""Between all dispatchers and PostgreSQL, while there are dispatchers. The suite itself goes direct."""


@dataclass(frozen=True)
class Proxy:
    """A proxy by name, and what it joins: both "127.0.0.1:port"."""

    name: str
    listen: str
    upstream: str


class Toxics:
    """The proxies of one Toxiproxy process. All methods block for at most `deadline_s` (call them in a thread from
    a coroutine that must not stall) and raise ChaosError."""

    def __init__(self, process: ManagedProcess, port: int, proxies: list[Proxy], *, deadline_s: float = 5.0) -> None:
        self.process = process
        self.proxies = {proxy.name: proxy for proxy in proxies}
        self.deadline_s = deadline_s
        self.control = f"http://127.0.0.1:{port}"
        self._consumer: type[APIConsumer] = type("Consumer", (APIConsumer,), {"host": "127.0.0.1", "port": port})

    def alive(self) -> bool:
        """Whether the control API answers."""
        try:
            self._call("version", lambda: self._consumer.get("/version", timeout=self.deadline_s))
        except ChaosError:
            return False
        return True

    def create(self) -> None:
        """Create every proxy, enabled and without toxics."""
        for proxy in list(self.proxies.values()):
            self.join(proxy)

    def join(self, proxy: Proxy) -> None:
        """One more proxy while the process runs; a restart brings it back too."""
        self.proxies[proxy.name] = proxy
        record = {"name": proxy.name, "listen": proxy.listen, "upstream": proxy.upstream, "enabled": True}
        self._post(f"create {proxy.name}", "/proxies", record)

    def leave(self, name: str) -> None:
        """Take a proxy away, with its connections."""
        path = self._path(name)
        del self.proxies[name]
        self._call(f"delete {name}", lambda: self._consumer.delete(path, timeout=self.deadline_s))

    def disable(self, name: str) -> None:
        """Stop listening and cut every connection: clients see "connection refused"."""
        self._post(f"disable {name}", self._path(name), {"enabled": False})

    def enable(self, name: str) -> None:
        self._post(f"enable {name}", self._path(name), {"enabled": True})

    def add(self, proxy: str, toxic_name: str, type: str, stream: str, attributes: dict[str, Any]) -> None:
        """Add a toxic. `stream` is "downstream" (answers) or "upstream" (requests).

        Toxicity stays 1.0: Toxiproxy draws it from a generator of its own; a share is drawn from the run's seed.
        """
        record = {"name": toxic_name, "type": type, "stream": stream, "toxicity": 1.0, "attributes": attributes}
        self._post(f"add {toxic_name} to {proxy}", f"{self._path(proxy)}/toxics", record)

    def remove(self, proxy: str, toxic_name: str) -> None:
        """Remove a toxic. For a `timeout` toxic this closes its connections: a heal is itself a cut."""
        path = f"{self._path(proxy)}/toxics/{toxic_name}"
        self._call(f"remove {toxic_name} from {proxy}", lambda: self._consumer.delete(path, timeout=self.deadline_s))

    def toxics(self, proxy: str) -> list[dict[str, Any]]:
        """The proxy's toxics as Toxiproxy tells them."""
        answer = self._call("list", lambda: self._consumer.get(f"{self._path(proxy)}/toxics", timeout=self.deadline_s))
        return list(answer.json())

    def enabled(self, proxy: str) -> bool:
        answer = self._call("read", lambda: self._consumer.get(self._path(proxy), timeout=self.deadline_s))
        return bool(answer.json()["enabled"])

    def reset(self) -> None:
        """Enable every proxy and remove every toxic."""
        self._call("reset", lambda: self._consumer.post("/reset", timeout=self.deadline_s))

    async def restart(self, deadline_s: float = 10.0) -> None:
        """Kill the process, start it, create its proxies anew. Every connection through it is cut."""
        if self.process.alive:
            self.process.kill()
            await self.process.wait_exit(5)
        self.process.start()
        await self.process.wait_ready(deadline_s)
        self.create()

    def _path(self, name: str) -> str:
        if name not in self.proxies:
            raise ChaosError(f"no proxy {name!r}: there are {', '.join(self.proxies)}")
        return f"/proxies/{name}"

    def _post(self, what: str, path: str, record: dict[str, Any]) -> None:
        self._call(what, lambda: self._consumer.post(path, json=record, timeout=self.deadline_s))

    def _call(self, what: str, send: Callable[[], requests.Response]) -> requests.Response:
        """`send` in a thread: the timeout of `requests` is one a socket operation, ours is total."""
        answer: concurrent.futures.Future[requests.Response] = concurrent.futures.Future()
        threading.Thread(target=_settle, args=(answer, send), daemon=True).start()
        try:
            reply = answer.result(self.deadline_s)
        except (concurrent.futures.TimeoutError, requests.Timeout):
            raise ChaosError(
                f"Toxiproxy did not answer `{what}` within {self.deadline_s:g} s; restart it (`Toxics.restart`)",
                log=self.process.log,
            ) from None
        except (ProxyExists, NotFound, InvalidToxic) as error:  # their argument is the answer's body
            said = error.args[0].decode(errors="replace").strip()
            raise ChaosError(f"Toxiproxy refused `{what}`: {said}", log=self.process.log) from error
        except requests.RequestException as error:
            raise ChaosError(f"Toxiproxy cannot be reached for `{what}`: {error}", log=self.process.log) from error
        if not reply.ok:  # the library raises for 400, 404 and 409 only
            raise ChaosError(f"Toxiproxy refused `{what}`: {reply.status_code} {reply.text}", log=self.process.log)
        return reply


def _settle(answer: "concurrent.futures.Future[T]", send: Callable[[], T]) -> None:
    try:
        answer.set_result(send())
    except BaseException as error:
        answer.set_exception(error)
