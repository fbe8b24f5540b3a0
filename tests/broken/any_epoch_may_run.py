"""RUNNING is accepted whatever its epoch: the pod of a lost answer runs beside its successor (R11)."""

from dataclasses import replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from dispatcher.store import reports
from dispatcher.store.common import t
from tests.broken import Put


def apply(put: Put) -> None:
    right = reports.run_if_current_or_own

    async def run_if_current_or_own(connection: AsyncConnection, who: reports.Reporter, **times: Any) -> bool:
        epoch = (await connection.execute(select(t.attempt_epoch).where(t.id == who.row_id))).scalar_one()
        return await right(connection, replace(who, epoch=epoch), **times)

    put(reports, "run_if_current_or_own", run_if_current_or_own)
