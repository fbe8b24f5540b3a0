"""Logs and metrics. Logs are one JSON object a line on stderr, without secrets; metrics are named below."""

import logging
import sys
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_CAUSES = 100  # causes are typed and few; a webhook's name can be in one, so their number is bounded here
_CREATE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30)


def configure_logging(log_format: str, level: str) -> None:
    """Everything that logs, our code and the libraries, in one format: `json` or `console`.

    Tracebacks carry no local variables: specs and tokens live in them.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if log_format == "json":
        last: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        last = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("kubernetes", "aiohttp", "uvicorn", "alembic", "sqlalchemy"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))


class Metrics:
    """The metrics of one dispatcher process, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        to = self.registry
        self._causes: set[str] = set()
        self.creates = Counter(
            "rideout_create_outcomes", "Creates by what came of them.", ["disposition", "cause"], registry=to
        )
        self.create_seconds = Histogram(
            "rideout_create_seconds",
            "From the start of a create to its outcome.",
            ["disposition"],
            buckets=_CREATE_BUCKETS,
            registry=to,
        )
        self.ambiguous = Counter(
            "rideout_ambiguous_creates", "Creates without a good answer that may have been committed (R3).", registry=to
        )
        self.lost_races = Counter(
            "rideout_lost_races",
            "Settlements that met a row which had moved on: the pod won, or somebody else owns it (R13).",
            ["decision"],
            registry=to,
        )
        self.refusals = Counter(
            "rideout_fence_refusals", "Reports that were told to terminate (R14).", ["report", "reason"], registry=to
        )
        self.reports = Counter("rideout_reports", "Agents' reports by their answer.", ["report", "answer"], registry=to)
        self.leader_term = Gauge(
            "rideout_leader_term", "The term in which this replica leads, 0 while it does not.", registry=to
        )
        self.api_down = Gauge(
            "rideout_kubernetes_api_down",
            "1: every create since the last answered one was Unavailable, over at least two rows. Leader only.",
            registry=to,
        )
        self.database_up = Gauge("rideout_database_up", "1: the figures below were read in this scrape.", registry=to)
        self.rows = Gauge("rideout_task_instances", "Task instances by state.", ["state"], registry=to)
        self.holding = Gauge("rideout_rows_holding", "Rows that ride an outage out.", registry=to)
        self.oldest_due = Gauge(
            "rideout_oldest_due_age_seconds", "Age of the oldest row that is due and does not run yet.", registry=to
        )
        self.oldest_unavailable = Gauge(
            "rideout_oldest_unavailable_age_seconds", "How long the row that holds for longest has held.", registry=to
        )
        self.window_left = Gauge(
            "rideout_window_left_seconds",
            "Smallest time left in the window of a holding row; +Inf: none holds.",
            registry=to,
        )
        self.window_left.set(float("inf"))

    def cause(self, cause: str) -> str:
        """A cause as a label: at most `_CAUSES` different ones, then `other`."""
        if cause in self._causes or len(self._causes) < _CAUSES:
            self._causes.add(cause)
            return cause
        return "other"

    def text(self) -> bytes:
        return generate_latest(self.registry)
