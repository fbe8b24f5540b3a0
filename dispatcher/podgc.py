"""Clean pods up: those of a stale epoch as soon as the API answers, finished ones after a while (R22).

Never a condition for dispatching, and never evidence for a row.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import structlog
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher.clock import Now
from dispatcher.executors.pods import ListFailed, PodFact, Pods
from dispatcher.outage import ApiHealth
from dispatcher.schema import task_instances
from dispatcher.store import recovery
from dispatcher.store.recovery import Owner

log = structlog.get_logger(__name__)

_AT_ONCE = 200


class PodGc:
    """One round at a time, by the leader."""

    def __init__(
        self, *, engine: AsyncEngine, clock: Now, pods: Pods, health: ApiHealth, namespace: str, finished_ttl_s: float
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._pods = pods
        self._health = health
        self._namespace = namespace
        self._finished_ttl = timedelta(seconds=finished_ttl_s)

    async def round(self) -> int:
        """Delete what may go; how many deletes the API took. A failed list or delete is tried again next time."""
        if self._health.down:
            return 0
        async with self._engine.connect() as connection:
            namespaces = set((await connection.execute(select(task_instances.c.namespace).distinct())).scalars())
        pods: list[PodFact] = []
        for namespace in sorted(namespaces | {self._namespace}):
            try:
                pods += await self._pods.list_all([namespace])
            except ListFailed as error:  # one that we may not list must not keep the others from being cleaned
                log.info("podgc.no_list", error=str(error))
        async with self._engine.connect() as connection:
            owners = await recovery.owners(connection, {pod.row_id for pod in pods})
        deleted = 0
        for pod in doomed(pods, owners, before=self._clock.now() - self._finished_ttl)[:_AT_ONCE]:
            deleted += await self._pods.delete(pod)
        return deleted


def doomed(pods: Iterable[PodFact], owners: Mapping[int, Owner], *, before: datetime) -> list[PodFact]:
    """Which pods may go: stale ones first, then those that finished before `before`. Pure."""
    stale, finished = [], []
    for pod in pods:
        if pod.deleted:
            continue
        if is_stale(pod, owners.get(pod.row_id)):
            stale.append(pod)
        elif pod.finished and pod.finished_at is not None and pod.finished_at <= before:
            finished.append(pod)
    return stale + finished


def is_stale(pod: PodFact, owner: Owner | None) -> bool:
    """Whether no report of this pod can be accepted any more: its row is gone or past its epoch, or another pod has
    the attempt. A pod that carries an epoch the row has not reached yet was listed before we looked: not stale."""
    if owner is None or pod.epoch < owner.epoch:
        return True
    return pod.epoch == owner.epoch and owner.pod_uid not in (None, pod.uid)
