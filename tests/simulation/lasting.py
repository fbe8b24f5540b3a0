"""What outlives a schedule: the virtual loop, the pool of connections, and the harness's own connection."""

from dataclasses import dataclass

import psycopg
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.simulation.virtual_time import VirtualLoop


@dataclass(frozen=True, slots=True)
class Lasting:
    loop: VirtualLoop
    engine: AsyncEngine
    admin: psycopg.Connection
