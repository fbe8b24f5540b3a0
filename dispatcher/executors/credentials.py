"""The connection to the API: credentials read anew when their files change, and once after a 401 (R26)."""

import asyncio
from pathlib import Path
from typing import Any

from kubernetes.aio import client, config

from dispatcher.errors import NoUsableCredentials
from dispatcher.executors.transport import OneShotApiClient

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOOK_EVERY_S = 1.0
_Stamps = dict[Path, tuple[int, int, int]]


class Connection:
    """One API client at a time, replaced as a whole; requests under way keep the one they began with."""

    def __init__(self, kubeconfig: Path | None, *, connections: int) -> None:
        self._kubeconfig = kubeconfig
        self._connections = connections
        self._client: OneShotApiClient | None = None
        self._stamps: _Stamps = {}
        self._looked_at = float("-inf")
        self._retired: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    async def client(self) -> OneShotApiClient:
        """The present client; built, or built anew, when a file it was made from has changed.

        :raises NoUsableCredentials: only while there is no client yet; later a broken file keeps the old one.
        """
        now = asyncio.get_running_loop().time()
        if self._client is not None and now - self._looked_at < _LOOK_EVERY_S:
            return self._client
        async with self._lock:
            if self._client is not None and not self._changed(now):
                return self._client
            try:
                self._client = await self._renew(self._client)
            except NoUsableCredentials:
                if self._client is None:
                    raise
            return self._client

    async def read_anew(self) -> None:
        """After a 401: forget what was read. The next create builds a client from the files as they are."""
        self._stamps = {}
        self._looked_at = float("-inf")

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
        for task in self._retired:
            task.cancel()

    def _changed(self, now: float) -> bool:
        self._looked_at = now
        return not self._stamps or any(_stamp(path) != stamp for path, stamp in self._stamps.items())

    async def _renew(self, retired: OneShotApiClient | None) -> OneShotApiClient:
        configuration = client.Configuration()
        try:
            if self._kubeconfig is not None:
                await config.load_kube_config(
                    config_file=str(self._kubeconfig), client_configuration=configuration, persist_config=False
                )
            else:
                config.load_incluster_config(client_configuration=configuration)
            configuration.connection_pool_maxsize = self._connections
            fresh = OneShotApiClient(configuration)
        except Exception as error:  # the loader raises whatever its parsers raise
            source = self._kubeconfig or "in-cluster ServiceAccount"
            raise NoUsableCredentials(
                f"cannot use the Kubernetes credentials of {source}: {error} "
                f"(set RIDEOUT_KUBECONFIG to a kubeconfig with a reachable server and readable certificates)"
            ) from error
        self._stamps = {path: _stamp(path) for path in self._files(configuration)}
        if retired is not None:
            task = asyncio.create_task(_close_later(retired))
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)
        return fresh

    def _files(self, configuration: Any) -> set[Path]:
        named = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        files = {Path(name) for name in named if name}
        if self._kubeconfig is not None:
            return files | {self._kubeconfig}
        return files | {_SERVICE_ACCOUNT / "token"}


async def _close_later(retired: OneShotApiClient) -> None:
    await asyncio.sleep(60)  # longer than any create under way may take
    await retired.close()


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)
