"""Free ports below the kernel's ephemeral range, kept by one testbed for as long as it lives.

A listener inside the ephemeral range can lose its port to some outgoing connection while its server is stopped, and
stopping servers is what the suite does all day (Toxiproxy: "address already in use" on enable). Below that range
only another testbed competes, so each port is claimed machine-wide by binding an abstract Unix socket named after
it: exclusive across users, and released by the kernel however its holder dies.
"""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

from chaos.errors import ChaosError

RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 10_240  # leaves alone what people run by hand: databases, web servers, node exporters


def candidates(first_ephemeral: int, last_ephemeral: int) -> list[range]:
    """Port ranges outside the ephemeral one, best first; empty where the kernel was given nearly every port."""
    spans = [range(LOWEST, first_ephemeral), range(last_ephemeral + 1, 65_536)]
    return [span for span in spans if len(span) >= 200]


class Ports:
    """Claims ports for one testbed. `take()` never gives the same port twice; `close()` gives all of them back."""

    def __init__(self) -> None:
        self._claims: dict[int, socket.socket] = {}

    def take(self) -> int:
        """A TCP port on 127.0.0.1 that nothing listens on and no other testbed has claimed.

        Raises ChaosError when a thousand tries found none.
        """
        for port in self._proposals():
            if port not in self._claims and (claim := _claim(port)) is not None:
                if _is_free(port):
                    self._claims[port] = claim
                    return port
                claim.close()
        raise ChaosError("no free TCP port on 127.0.0.1: stop what occupies them (`ss -ltn` lists it)")

    def close(self) -> None:
        for claim in self._claims.values():
            claim.close()
        self._claims.clear()

    def _proposals(self) -> Iterator[int]:
        first, last = (int(word) for word in RANGE_FILE.read_text().split())
        spans = candidates(first, last) or [range(LOWEST, 65_536)]
        # Ports are no part of what a seed replays: two testbeds with one seed must not propose the same ones.
        dice = random.SystemRandom()
        for _ in range(1000):
            yield dice.choice(spans[0])


def _claim(port: int) -> socket.socket | None:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0rideout-port-{port}")
    except OSError:
        claim.close()
        return None
    return claim


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the servers do (Go sets it too): connections that linger in TIME_WAIT do not make a port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
