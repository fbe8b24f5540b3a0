"""A database that does not answer is read as a row that does not fit: healthy agents are told to terminate (R14)."""

from sqlalchemy.exc import SQLAlchemyError

from dispatcher.reports import Answer, Refused, Reports
from dispatcher.store.reports import Reporter
from tests.broken import Put


def apply(put: Put) -> None:
    right = Reports.running

    async def running(self: Reports, who: Reporter) -> Answer:
        try:
            return await right(self, who)
        except (SQLAlchemyError, OSError):
            return Refused("stale_epoch", "no such attempt")

    put(Reports, "running", running)
