"""The connection to the API: credentials read anew when their files change, and once after a 401 (R26)."""

import asyncio
import errno
from pathlib import Path
from typing import Any

from kubernetes.aio import client, config

from dispatcher.errors import NoUsableCredentials
from dispatcher.executors.transport import OneShotApiClient

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOOK_EVERY_S = 1.0
_NOT_THE_FILES_FAULT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_Stamps = dict[Path, tuple[int, int, int]]


class Connection:
    """One API client at a time, replaced as a whole; requests under way keep the one they began with."""

    def __init__(self, kubeconfig: Path | None, *, connections: int, retire_s: float = 60) -> None:
        """:param retire_s: a replaced client is closed after this, longer than any request under way may take."""
        self._kubeconfig = kubeconfig
        self._connections = connections
        self._retire_s = retire_s
        self._client: OneShotApiClient | None = None
        self._stamps: _Stamps = {}
        self._looked_at = float("-inf")
        self._retired: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    async def client(self) -> OneShotApiClient:
        """The present client; built, or built anew, when a file it was made from has changed.

        :raises NoUsableCredentials, OSError: only while there is no client yet; later a broken file, or a process
            that is out of file descriptors, keeps the old one.
        """
        now = asyncio.get_running_loop().time()
        if self._client is not None and now - self._looked_at < _LOOK_EVERY_S:
            return self._client
        async with self._lock:
            if self._client is not None and not self._changed(now):
                return self._client
            try:
                self._client = await self._renew(self._client)
            except (NoUsableCredentials, OSError):
                if self._client is None:
                    raise
            return self._client

    async def read_anew(self, refused: OneShotApiClient | None = None) -> None:
        """After a 401: forget what was read. The next create builds a client from the files as they are.

        :param refused: the client that got the 401. When another has replaced it since, there is nothing to do:
            of many creates that were refused together, one makes us read anew.
        """
        if refused is None or refused is self._client:
            self._stamps = {}
            self._looked_at = float("-inf")

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
        for task in self._retired:
            task.cancel()
        await asyncio.gather(*self._retired, return_exceptions=True)

    def _changed(self, now: float) -> bool:
        self._looked_at = now
        return not self._stamps or any(_stamp(path) != stamp for path, stamp in self._stamps.items())

    async def _renew(self, retired: OneShotApiClient | None) -> OneShotApiClient:
        configuration = client.Configuration()
        try:
            files = await self._load(configuration)
            configuration.connection_pool_maxsize = self._connections
            fresh = OneShotApiClient(configuration)
        except Exception as error:  # the loader raises whatever its parsers raise
            if isinstance(error, OSError) and error.errno in _NOT_THE_FILES_FAULT:
                raise
            source = self._kubeconfig or "in-cluster ServiceAccount"
            raise NoUsableCredentials(
                f"cannot use the Kubernetes credentials of {source}: {error} "
                f"(set RIDEOUT_KUBECONFIG to a kubeconfig with a reachable server and readable certificates)"
            ) from error
        self._stamps = {path: _stamp(path) for path in files}
        if retired is not None:
            task = asyncio.create_task(_close_later(retired, self._retire_s))
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)
        return fresh

    async def _load(self, configuration: Any) -> set[Path]:
        """Fill the configuration; the files that it was made from."""
        if self._kubeconfig is not None:
            loader = await config.load_kube_config(
                config_file=str(self._kubeconfig), client_configuration=configuration, persist_config=False
            )
            files = {self._kubeconfig} | _token_files(self._kubeconfig, loader.current_context["context"].get("user"))
        else:
            # Its own refresh reads the token once a minute; a look at the file each second needs no other.
            config.load_incluster_config(client_configuration=configuration, try_refresh_token=False)
            files = {_SERVICE_ACCOUNT / "token"}
        token = configuration.api_key.get("BearerToken")
        if token is not None:
            # Files that people write end in a newline, which no HTTP header may hold.
            configuration.api_key["BearerToken"] = token = token.strip()
            if not token.isprintable():
                raise ValueError("the token holds control characters")
        named = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        return files | {Path(name) for name in named if name}


def _token_files(kubeconfig: Path, user_name: str | None) -> set[Path]:
    """The `tokenFile` of a user: the loader reads it, and does not say which it was.

    :raises ValueError: it is empty: caught in the middle of a rotation, it would make us anonymous.
    """
    users = config.kube_config.KubeConfigMerger(str(kubeconfig)).config.value.get("users") or []
    named = [(user.value.get("user") or {}).get("tokenFile") for user in users if user.value.get("name") == user_name]
    files = {kubeconfig.parent / name for name in named if name}
    for file in files:
        if not file.read_text().strip():
            raise ValueError(f"{file} is empty")
    return files


async def _close_later(retired: OneShotApiClient, after_s: float) -> None:
    try:
        await asyncio.sleep(after_s)
    finally:
        await retired.close()


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)
