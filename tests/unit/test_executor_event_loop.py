"""Resets in the TLS handshake must not cost anybody else a file: what uvloop does, and why it is not used.

Seen with uvloop 0.23 and aiohttp 3.14: `create_connection(sock=…)` closes the descriptor when the handshake is
reset, and the socket object, which does not know, closes the same number again when it is collected. In between the
number belongs to whatever was opened next: the database's connection, the outcome log.
"""

import ast
import gc
from pathlib import Path

import dispatcher
from tests.faults import transport
from tests.faults.client import Client
from tests.faults.server import FaultServer


def test_connections_reset_in_the_handshake_close_no_other_file(client: Client, server: FaultServer):
    server.play(transport.reset_at_accept)
    gc.collect()
    gc.freeze()  # collect only what this test leaves behind
    gc.disable()  # the second close comes with the collection: let it come after the victims were opened
    try:
        for _ in range(8):
            client.create()
            opened_next = [Path(__file__).open("rb") for _ in range(4)]  # noqa: SIM115
            gc.collect()
            for file in opened_next:
                with file:
                    assert file.read(1)
    finally:
        gc.enable()
        gc.unfreeze()


def test_the_dispatcher_does_not_use_uvloop():
    for path in Path(dispatcher.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            assert "uvloop" not in names, path
