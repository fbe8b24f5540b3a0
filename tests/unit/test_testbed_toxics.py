"""The Toxiproxy adapter against a control API that hangs, refuses, and is not there."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from chaos.errors import ChaosError
from chaos.testbed.processes import Supervisor
from chaos.testbed.toxics import Proxy, Toxics


class ControlApi(BaseHTTPRequestHandler):
    """`drip` sends a byte every 50 ms for ever: no socket timeout ever fires."""

    answer = "ok"
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        if self.answer == "drip":
            self.send_response(200)
            self.end_headers()
            try:
                while not self.server.over.is_set():  # type: ignore[attr-defined]
                    self.wfile.write(b" ")
                    self.wfile.flush()
                    time.sleep(0.05)
            except OSError:
                return
        status = int(self.answer) if self.answer.isdigit() else 200
        self.send_response(status)
        self.send_header("content-length", "16")
        self.end_headers()
        self.wfile.write(b'{"error": "why"}')

    do_POST = do_DELETE = do_GET

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    ControlApi.answer, ControlApi.asked = "ok", []
    made = ThreadingHTTPServer(("127.0.0.1", 0), ControlApi)
    made.over = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.over.set()  # type: ignore[attr-defined]
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def toxics(server: ThreadingHTTPServer, tmp_path: Path) -> Iterator[Toxics]:
    supervisor = Supervisor(tmp_path, tmp_path / "state")
    process = supervisor.process("toxiproxy", ["sleep", "60"])
    yield Toxics(process, server.server_port, [Proxy("api", "127.0.0.1:1", "127.0.0.1:2")], deadline_s=0.5)
    supervisor.close()


def test_a_dripping_answer_ends_in_a_deadline_and_names_the_last_resort(toxics: Toxics):
    ControlApi.answer = "drip"
    began = time.monotonic()
    with pytest.raises(ChaosError, match=r"did not answer `remove t from api` within 0\.5 s; restart it"):
        toxics.remove("api", "t")
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("status", ["400", "404", "409", "500"])
def test_every_refusal_is_an_error(toxics: Toxics, status: str):
    """The library itself raises for three of them and takes a 500 for success."""
    ControlApi.answer = status
    with pytest.raises(ChaosError, match=r"Toxiproxy refused `disable api`: .*why") as failure:
        toxics.disable("api")
    assert failure.value.log == toxics.process.log


def test_a_toxiproxy_that_is_gone_is_said_to_be(toxics: Toxics, server: ThreadingHTTPServer):
    server.socket.close()
    with pytest.raises(ChaosError, match="Toxiproxy cannot be reached for `enable api`"):
        toxics.enable("api")
    assert not toxics.alive()


def test_an_unknown_proxy_is_told_with_those_there_are(toxics: Toxics):
    with pytest.raises(ChaosError, match="no proxy 'apis': there are api"):
        toxics.disable("apis")
    assert ControlApi.asked == []


def test_two_adapters_in_one_process_have_two_addresses(toxics: Toxics, server: ThreadingHTTPServer):
    """`toxiproxy-python` keeps the address in a class attribute that all would share."""
    other = Toxics(toxics.process, 1, [Proxy("api", "", "")], deadline_s=0.5)
    with pytest.raises(ChaosError, match="cannot be reached"):
        other.disable("api")
    toxics.disable("api")
    assert ControlApi.asked == ["POST /proxies/api"]
