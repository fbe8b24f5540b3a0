"""Every connection is reset (RST) with the first bytes that a client sends on it."""

import asyncio

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Ground
from chaos.faults.toxic import ToxicFault, address

CLIENT_HELLO = b"\x16\x03\x01\x00\x05hello"


class ConnectionsReset(ToxicFault):
    """As a middlebox that lost its state does. Fired = a connection of the suite's own was reset, and the probe's
    creates fail."""

    name = "connections-reset"
    kind, stream, attributes = "reset_peer", "upstream", {"timeout": 0}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        met = await _say_hello(*address(ground))
        if met != "reset":
            raise ChaosError(f"{self.name} did not fire: a connection of the suite's own was not reset, it was {met}")
        return await super().confirm_fired(ground)


async def _say_hello(host: str, port: int) -> str:
    """What becomes of a new connection that says something: "reset", "closed" or "answered"."""
    writer = None
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(CLIENT_HELLO)
            await writer.drain()
            return "answered" if await reader.read(1) else "closed"
    except ConnectionResetError:
        return "reset"
    except TimeoutError:
        return "left open"
    finally:
        if writer is not None:
            writer.close()
