"""A stage for the real agent: a scripted dispatcher on a real socket, and agents as real processes."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

AGENT = Path(__file__).resolve().parents[2] / "dispatcher" / "agent.py"
DEADLINE_S = 30.0
PROBLEM = "application/problem+json"
REFUSAL = {"type": "about:blank", "status": 409, "should_terminate": True, "reason": "stale_epoch"}
LEASE: dict[str, Any] = {"lease_s": 90, "heartbeat_s": 20, "margin_s": 15}


def http(status: int, body: Any = b"", content_type: str = "application/json", **headers: str) -> bytes:
    """A whole HTTP answer; `body` is bytes, or a document."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Phrase", f"Content-Type: {content_type}", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


RUN = http(200, {"decision": "run", **LEASE})
RENEWED = http(200, {"decision": "renewed", **LEASE})
RECORDED = http(200, {"decision": "recorded"})
REFUSED = http(409, REFUSAL, PROBLEM)


def wait_for(what: str, condition: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
    """The first true value of `condition`. Fails loudly with what it was waiting for."""
    until = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"waited {deadline_s:g} s for {what}")
        time.sleep(0.01)
    return value


@dataclass(frozen=True)
class Asked:
    what: str
    path: str
    token: str
    body: dict[str, Any]
    at: float
    """time.monotonic() of its arrival."""


Play = bytes | Callable[[socket.socket, Asked], None]


@dataclass
class Dispatcher:
    """Plays the scripted answers of each report in turn; the last one for ever."""

    script: dict[str, list[Play]]
    tls: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http{'s' if self.tls else ''}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def reports(self, what: str) -> list[Asked]:
        return [one for one in self.asked if one.what == what]

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        if self.tls is not None:
            try:
                connection = self.tls.wrap_socket(connection, server_side=True)
            except OSError:
                return  # the agent did not trust it
        with connection, connection.makefile("rb") as stream:
            _, path, _ = stream.readline().decode().split()
            headers: dict[str, str] = {}
            while line := stream.readline().strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            body = json.loads(stream.read(int(headers["content-length"])))
            token = headers.get("authorization", "").removeprefix("Bearer ")
            asked = Asked(path.rsplit("/", 1)[1], path, token, body, time.monotonic())
            with self._lock:
                plays = self.script[asked.what]
                play = plays.pop(0) if len(plays) > 1 else plays[0]
                self.asked.append(asked)
            try:
                play(connection, asked) if callable(play) else connection.sendall(play)
            except OSError:
                pass  # the agent gave the request up


@dataclass
class Agent:
    """A real agent process. `events` are its JSON lines so far."""

    process: subprocess.Popen[bytes]
    stderr: Path
    stdout: Path

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stderr.read_text().splitlines() if line.startswith("{")]

    def said(self, name: str, **fields: Any) -> list[dict[str, Any]]:
        return [e for e in self.events if e["agent"] == name and fields.items() <= e.items()]

    def wait_said(self, name: str, **fields: Any) -> dict[str, Any]:
        found = wait_for(f"the agent to say {name} {fields}: {self.stderr}", lambda: self.said(name, **fields))
        event: dict[str, Any] = found[0]
        return event

    def ends(self) -> int:
        return self.process.wait(DEADLINE_S)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


def start_agent(
    folder: Path, urls: Sequence[str], command: Sequence[str], *, drop: Sequence[str] = (), **env: str
) -> Agent:
    """Start an agent as a pod would: `python3 -I agent.py -- command`."""
    environment = {
        "PATH": os.environ["PATH"],
        "RIDEOUT_ROW": "7",
        "RIDEOUT_EPOCH": "3",
        "RIDEOUT_TRY": "1",
        "RIDEOUT_TOKEN": "secret-token",
        "RIDEOUT_POD_UID": "uid-7",
        "RIDEOUT_POD_NAME": "pod-7",
        "RIDEOUT_DISPATCHERS": ",".join(urls),
        **env,
    }
    for name in drop:
        del environment[name]
    stderr, stdout, stdin = folder / "stderr", folder / "stdout", folder / "stdin"
    stdin.write_text("not for user code")
    with stderr.open("wb") as errors, stdout.open("wb") as output, stdin.open("rb") as typed:
        process = subprocess.Popen(
            [sys.executable, "-I", AGENT, "--", *command],
            env=environment, stdin=typed, stdout=output, stderr=errors, start_new_session=True,
        )  # fmt: skip
    return Agent(process, stderr, stdout)


def runs(pid: int) -> bool:
    """Whether a process executes; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
