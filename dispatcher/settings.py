"""Every setting: its unit, range, default and reason. Read from `RIDEOUT_*` environment variables.

`RIDEOUT_PROFILE=quick` divides the durations by ten, with the floors that the rules name, so that a whole
outage fits in half a minute; a single setting given beside it wins. A value out of range is refused at start.
"""

import os
import socket
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dispatcher.rules import Policy

PREFIX = "RIDEOUT_"


EXECUTORS = ("kubernetes", "subprocess")


class Profile(StrEnum):
    FULL = "full"
    QUICK = "quick"


class Mode(StrEnum):
    """Which of the two dispatch paths (R18)."""

    TICK = "tick"
    BUFFERED = "buffered"


class PolicyName(StrEnum):
    """`window` is the decision; `attempts-only` is the rule from before it, kept as the suite's control."""

    WINDOW = "window"
    ATTEMPTS_ONLY = "attempts-only"


QUICK: dict[str, float] = {
    "window_s": 90,
    "hold_min_s": 0.5,
    "hold_max_s": 6,
    "offer_lead_s": 0.3,
    "backoff_s": 0.5,
    "create_deadline_s": 5,
    "tick_s": 0.1,
    "buffer_wait_s": 1,
    "rate_wait_s": 0.2,
    "backpressure_delay_s": 1,
    "backpressure_max_s": 6,
    "claim_margin_s": 1,
    "heartbeat_s": 5,
    "lease_s": 30,
    "lease_margin_s": 5,
    "placed_timeout_s": 30,
    "orphan_run_s": 30,
    "leader_lease_s": 5,
    "leader_renew_s": 1.5,
    "finished_pod_ttl_s": 30,
    "pod_list_s": 3,
    "re_place_s": 0.5,
    "re_place_max_s": 30,
}
"""All durations divided by ten, with floors: create deadline 5 s, leader lease 5 s, agent lease 30 s."""


def _seconds(default: float, low: float, high: float, why: str) -> Any:
    return Field(default, ge=low, le=high, description=f"seconds, {low:g} to {high:g}: {why}")


class Settings(BaseSettings):
    """The dispatcher's settings; `python -m dispatcher config` prints them with their source and reason."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", validate_default=True)

    profile: Profile = Field(Profile.FULL, description="full: the production constants; quick: a tenth of them")
    mode: Mode = Field(Mode.BUFFERED, description="dispatch path: tick or buffered workers (R18)")
    policy: PolicyName = Field(PolicyName.WINDOW, description="window, or attempts-only: the rule before it")
    replica: str = Field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}",
        min_length=1,
        max_length=200,
        description="this replica's name in claims, logs and the leadership table",
    )

    database_url: str = Field(
        "postgresql+psycopg://localhost/rideout", description="PostgreSQL, as a SQLAlchemy URL with psycopg"
    )
    database_pool: int = Field(16, ge=2, le=200, description="connections a replica may hold, 2 to 200")

    executors: Annotated[list[str], NoDecode] = Field(
        ["kubernetes"],
        min_length=1,
        description="comma separated: kubernetes, subprocess; tasks that name none run in the first (R9)",
    )
    kubeconfig: Path | None = Field(None, description="kubeconfig file; unset: the pod's own ServiceAccount")
    namespace: str = Field(
        "tasks",
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        description="namespace of task pods whose spec names none",
    )
    instance: str = Field(
        "default",
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        description="tells the pods of two dispatchers in one namespace apart",
    )
    agent_command: list[str] = Field(
        ["python3", "-I", "/opt/rideout/agent.py"],
        min_length=1,
        description="JSON list: starts the agent in a pod",
    )
    advertise_urls: Annotated[list[str], NoDecode] = Field(
        ["http://127.0.0.1:8080"],
        min_length=1,
        description="comma separated: every replica's URL, for the agents",
    )
    listen: str = Field("127.0.0.1:8080", description="host:port of the HTTP server")
    api_token: SecretStr | None = Field(
        None, description="bearer token of submitters and operators; unset: the server binds to loopback only"
    )
    signing_keys: Annotated[list[SecretStr], NoDecode] = Field(
        [],
        max_length=2,
        description="comma separated keys for attempt tokens: the first signs, both are accepted (R26)",
    )
    outcome_log: Path | None = Field(None, description="file that gets one JSON line a create outcome")
    log_format: str = Field("json", pattern="^(json|console)$", description="json or console")
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="debug, info, warning, error")

    window_s: float = _seconds(900, 1, 86_400, "outlasts a control-plane upgrade; longer is an operator's outage (R4)")
    hold_min_s: float = _seconds(5, 0.1, 600, "shortest hold of an unavailable row (R5)")
    hold_max_s: float = _seconds(60, 0.2, 3_600, "longest hold, so that a recovery is noticed within it (R5)")
    offer_lead_s: float = _seconds(3, 0, 60, "taken off the longest hold: tick, limiter wait and the create (R5)")
    attempts: int = Field(6, ge=1, le=100, description="rejections that fail a row, 1 to 100 (R6)")
    backoff_s: float = _seconds(5, 0.1, 600, "after the first rejection, doubling (R6)")
    create_deadline_s: float = _seconds(
        15, 0.5, 300, "total deadline of a create; longer than the webhook default of 10 s (R1)"
    )
    backpressure_delay_s: float = _seconds(10, 0.1, 600, "re-offer after a 429 or a used-up quota")
    backpressure_max_s: float = _seconds(60, 0.1, 3_600, "cap on Retry-After")

    tick_s: float = _seconds(1, 0.02, 60, "pause of the loop that found less than it asked for (R18)")
    slots: int = Field(64, ge=1, le=10_000, description="creates under way at once, or workers, 1 to 10000 (R18)")
    buffer: int = Field(1024, ge=1, le=100_000, description="rows the workers' buffer holds, 1 to 100000 (R18)")
    buffer_wait_s: float = _seconds(10, 0.1, 600, "a row that waits in the buffer for longer is deferred (R18)")
    rate_limit: float = Field(400, ge=0, le=100_000, description="creates a second, 0 is unlimited (Deferred)")
    rate_burst: int = Field(800, ge=1, le=200_000, description="creates at once before the rate applies")
    rate_wait_s: float = _seconds(2, 0, 60, "longest wait for the rate limiter, then Deferred")
    claim_margin_s: float = _seconds(10, 0.1, 600, "added to a claim's own deadlines before it counts as dead")

    heartbeat_s: float = _seconds(20, 0.5, 600, "agents renew their lease (R15)")
    lease_s: float = _seconds(90, 2, 3_600, "a silent agent is replaced after this (R15)")
    lease_margin_s: float = _seconds(15, 0.5, 600, "an agent kills its user code this long before (R15)")
    placed_timeout_s: float = _seconds(300, 1, 86_400, "a placed pod that never reports is looked at (R20)")
    orphan_run_s: float = _seconds(300, 1, 86_400, "a run without a live row fails after this (R21)")
    leader_lease_s: float = _seconds(15, 1, 600, "another replica leads after this (R19)")
    leader_renew_s: float = _seconds(5, 0.2, 200, "the leader renews (R19)")
    finished_pod_ttl_s: float = _seconds(300, 1, 86_400, "finished pods are kept for a look (R22)")
    pod_list_s: float = _seconds(15, 0.5, 3_600, "between two looks at all pods, for clean-up (R22)")
    re_place_s: float = _seconds(5, 0.1, 600, "after the first infra re-place, doubling (R20)")
    re_place_max_s: float = _seconds(300, 1, 86_400, "longest wait after an infra re-place (R20)")

    @field_validator("advertise_urls", "signing_keys", "executors", mode="before")
    @classmethod
    def _split_commas(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("executors")
    @classmethod
    def _known_executors(cls, value: list[str]) -> list[str]:
        if unknown := [name for name in value if name not in EXECUTORS]:
            raise ValueError(f"unknown executor {unknown[0]!r}: there are {', '.join(EXECUTORS)}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _apply_profile(cls, data: dict[str, Any]) -> dict[str, Any]:
        if data.get("profile") == Profile.QUICK:
            return {**QUICK, **data}
        return data

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.hold_min_s > self.hold_max_s - self.offer_lead_s:
            raise ValueError(
                f"{PREFIX}HOLD_MIN_S ({self.hold_min_s:g}) must not exceed {PREFIX}HOLD_MAX_S − "
                f"{PREFIX}OFFER_LEAD_S ({self.hold_max_s - self.offer_lead_s:g})"
            )
        if self.leader_renew_s * 2 > self.leader_lease_s:
            raise ValueError(f"{PREFIX}LEADER_RENEW_S must be at most half of {PREFIX}LEADER_LEASE_S")
        if self.lease_margin_s + self.heartbeat_s >= self.lease_s:
            raise ValueError(f"{PREFIX}LEASE_S must exceed {PREFIX}HEARTBEAT_S + {PREFIX}LEASE_MARGIN_S")
        return self

    @property
    def rules(self) -> Policy:
        """What `decide` needs of the settings."""
        return Policy(
            window_s=self.window_s,
            hold_min_s=self.hold_min_s,
            hold_max_s=self.hold_max_s,
            offer_lead_s=self.offer_lead_s,
            attempts=self.attempts,
            backoff_s=self.backoff_s,
            backpressure_delay_s=self.backpressure_delay_s,
            backpressure_max_s=self.backpressure_max_s,
            tick_s=self.tick_s,
            unavailable_spends_attempts=self.policy is PolicyName.ATTEMPTS_ONLY,
        )

    @property
    def claim_s(self) -> float:
        """How long a claim lives: limiter wait + create deadline + margin (+ buffer wait), R18."""
        buffered = self.buffer_wait_s if self.mode is Mode.BUFFERED else 0.0
        return self.rate_wait_s + self.create_deadline_s + self.claim_margin_s + buffered
