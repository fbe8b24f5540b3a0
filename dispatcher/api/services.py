"""What the handlers work with, and who may call them."""

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from dispatcher.api.problems import Problem
from dispatcher.clock import Now
from dispatcher.outage import ApiHealth
from dispatcher.reports import Reports
from dispatcher.settings import Settings
from dispatcher.telemetry import Metrics
from dispatcher.tokens import AttemptTokens

DATABASE_S = 4.0
"""The longest a request waits for the database: below an agent's deadline of 5 s, so that it sees the 503 (R14)."""


class Leading(Protocol):
    """What the API tells of leadership (R19)."""

    term: int | None

    @property
    def leads(self) -> bool: ...


@dataclass(slots=True)
class Services:
    settings: Settings
    engine: AsyncEngine
    clock: Now
    tokens: AttemptTokens
    metrics: Metrics = field(default_factory=Metrics)
    health: ApiHealth = field(default_factory=ApiHealth)
    leadership: Leading | None = None
    ready: bool = True
    """False until the database was reached once and its clock read (R23)."""

    @property
    def reports(self) -> Reports:
        settings = self.settings
        return Reports(self.engine, self.clock, lease_s=settings.lease_s, replace_after_s=settings.re_place_s)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that ends within `DATABASE_S`, one way or the other."""
        async with bounded(self), self.engine.begin() as connection:
            yield connection


@asynccontextmanager
async def bounded(services: Services) -> AsyncIterator[None]:
    """A bound on whatever asks the database; raises TimeoutError past it, and Problem before the first contact."""
    if not services.ready:
        raise Problem(503, "the database was not reached yet; ask again", headers={"Retry-After": "1"})
    async with asyncio.timeout(DATABASE_S):
        yield


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Serving = Annotated[Services, Depends(services_of)]


def bearer(request: Request) -> str:
    """The bearer token of a request. Raises a 401 problem where there is none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Problem(401, "a bearer token is needed", headers={"WWW-Authenticate": "Bearer"})
    return token.strip()


def known_client(request: Request, services: Serving) -> None:
    """Submitters and operators show the token of RIDEOUT_API_TOKEN; without one we listen on loopback only."""
    expected = services.settings.api_token
    if expected is None:
        return
    if not hmac.compare_digest(bearer(request).encode(), expected.get_secret_value().encode()):
        raise Problem(401, "the token is not the one of RIDEOUT_API_TOKEN", headers={"WWW-Authenticate": "Bearer"})
