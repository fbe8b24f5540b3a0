"""Take back what is gone: expired leases, pods that will never report, runs without a live row (R20, R21).

Nothing here fails a row for an outage (R4), and nothing here runs while it could be wrong about it: not within one
lease of this leader's start or of the database's return, and, but for leases, not while the API is down.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher.clock import Now
from dispatcher.executors.pods import ListFailed, PodFact, Pods
from dispatcher.outage import ApiHealth
from dispatcher.store import recovery
from dispatcher.store.recovery import Gone, PlacedRow, RePlacePolicy

log = structlog.get_logger(__name__)


class Reaper:
    """One round at a time, by the leader."""

    def __init__(
        self,
        *,
        engine: AsyncEngine,
        clock: Now,
        pods: Pods | None,
        health: ApiHealth,
        policy: RePlacePolicy,
        lease_s: float,
        placed_timeout_s: float,
        orphan_run_s: float,
        look_every_s: float = 0.0,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._pods = pods
        self._health = health
        self._policy = policy
        self._lease = timedelta(seconds=lease_s)
        self._placed_timeout = timedelta(seconds=placed_timeout_s)
        self._orphan_run_s = orphan_run_s
        self._look_every = timedelta(seconds=look_every_s)
        self._look_from: datetime | None = None

    async def round(self, steady_since: datetime | None) -> None:
        """:param steady_since: since when this leader has led without a gap, and with its database."""
        async with self._engine.begin() as connection:
            await recovery.fail_orphan_runs(connection, now=self._clock.now(), orphan_s=self._orphan_run_s)
        if steady_since is None or self._clock.now() < steady_since + self._lease:
            return
        await self._re_place_expired_leases()
        # Pods may wait for a node without limit: they cost a list now and then, not one a tick.
        if self._look_from is None or self._clock.now() >= self._look_from:
            self._look_from = self._clock.now() + self._look_every
            await self._re_place_silent_pods()

    async def _re_place_expired_leases(self) -> None:
        async with self._engine.begin() as connection:
            expired = await recovery.re_place_expired_leases(connection, now=self._clock.now(), policy=self._policy)
        if expired:
            log.warning("lease.expired", rows=len(expired), first=expired[0])

    async def _re_place_silent_pods(self) -> None:
        async with self._engine.connect() as connection:
            silent = await recovery.placed_without_report(
                connection, placed_before=self._clock.now() - self._placed_timeout
            )
        if not silent:
            return
        by_namespace: dict[str, list[PlacedRow]] = {}
        gone: list[Gone] = []
        for row in silent:
            if row.executor == "subprocess":
                # A Lite agent has no pod that could be looked at; should it still report, its epoch is over.
                gone.append(Gone(row.id, row.epoch, row.pod_uid, "never reported"))
            else:
                by_namespace.setdefault(row.namespace, []).append(row)
        for namespace, rows in by_namespace.items():
            gone += what_is_gone(rows, await self._list(namespace))
        if gone:
            async with self._engine.begin() as connection:
                re_placed = await recovery.re_place_if_still_placed(
                    connection, gone, now=self._clock.now(), policy=self._policy
                )
            log.warning("placed.gone", rows=len(re_placed), first=gone[0].id, reason=gone[0].reason)

    async def _list(self, namespace: str) -> list[PodFact] | None:
        """A complete list, taken after the time of its rows was up; None if there is none."""
        if self._pods is None or self._health.down:
            return None
        try:
            return await self._pods.list_all([namespace])
        except ListFailed as error:
            log.warning("reaper.no_list", error=str(error))
            return None


def what_is_gone(silent: Sequence[PlacedRow], pods: Sequence[PodFact] | None) -> list[Gone]:
    """Which silent rows a complete list proves gone: their pod is absent, finished, or bound and not started (R20).

    No list proves nothing. A pod counts only for the row whose epoch and uid it carries (R22). One that waits for
    a node may wait for ever.
    """
    if pods is None:
        return []
    by_uid = {pod.uid: pod for pod in pods}
    gone = []
    for row in silent:
        pod = by_uid.get(row.pod_uid)
        if pod is None:
            gone.append(Gone(row.id, row.epoch, row.pod_uid, "the pod is gone"))
        elif pod.cannot_report:
            gone.append(Gone(row.id, row.epoch, row.pod_uid, pod.reason))
    return gone
