"""Ports: below the ephemeral range, machine-wide exclusive, released by whoever dies."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.errors import ChaosError
from chaos.testbed import ports
from chaos.testbed.ports import Ports

REPOSITORY = Path(__file__).parents[2]


def test_ports_are_distinct_free_and_not_ephemeral():
    first, last = (int(word) for word in ports.RANGE_FILE.read_text().split())
    mine = Ports()
    taken = [mine.take() for _ in range(50)]
    assert len(set(taken)) == 50
    if ports.candidates(first, last):
        assert not [port for port in taken if first <= port <= last]
    for port in taken:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
    mine.close()


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (32768, 60999, [range(10_240, 32768), range(61_000, 65_536)]),
        (1024, 60999, [range(61_000, 65_536)]),
        (1024, 65535, []),
        (16384, 65535, [range(10_240, 16384)]),
    ],
)
def test_where_ports_are_looked_for(first: int, last: int, expected: list[range]):
    assert ports.candidates(first, last) == expected


def test_two_testbeds_that_propose_the_same_ports_do_not_collide(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Ports, "_proposals", lambda self: iter(range(20_000, 20_400)))
    one, other = Ports(), Ports()
    taken = [one.take(), other.take(), one.take(), other.take()]
    assert len(set(taken)) == 4
    one.close()
    third = Ports()
    assert third.take() == taken[0], "given back"
    other.close()
    third.close()


def test_a_claim_holds_while_its_server_is_stopped_and_ends_with_its_holder(monkeypatch: pytest.MonkeyPatch):
    """Nothing listens on the port (an outage), and yet no other testbed gets it; a dead holder claims nothing."""
    code = (
        "import sys; from chaos.testbed.ports import Ports; p = Ports(); print(p.take(), flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert holder.stdout is not None
    port = int(holder.stdout.readline())
    monkeypatch.setattr(Ports, "_proposals", lambda self: iter([port]))
    mine = Ports()
    with pytest.raises(ChaosError, match="no free TCP port"):
        mine.take()
    holder.kill()
    holder.communicate()
    assert mine.take() == port
    mine.close()


def test_an_occupied_port_is_passed_over(monkeypatch: pytest.MonkeyPatch):
    mine = Ports()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        monkeypatch.setattr(Ports, "_proposals", lambda self: iter([port]))
        with pytest.raises(ChaosError, match="no free TCP port"):
            mine.take()
    mine.close()
