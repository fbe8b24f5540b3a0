"""What a suite that crashed leaves open is on disk, and `chaos heal` replays it."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from chaos.errors import ChaosError
from chaos.testbed.reaper import read_pid_file, write_pid_file
from chaos.undo import FILE, SUITE_PID, Undos, heal_all, replay

ENABLE = {"do": "enable", "control": "http://127.0.0.1:1", "proxy": "api"}


class Control(ThreadingHTTPServer):
    """Toxiproxy's control API, as far as an undo uses it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.asked: list[tuple[str, str, str]] = []
        self.say = 200
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Asked(BaseHTTPRequestHandler):
    server: Control

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        self.server.asked.append((self.command, self.path, body))
        self.send_response(self.server.say)
        self.send_header("content-length", "0")
        self.end_headers()

    do_POST = do_DELETE = answer

    def log_message(self, *_: object) -> None: ...


def test_an_undo_is_on_disk_when_add_returns_and_gone_when_it_is_closed(tmp_path: Path):
    undos = Undos(tmp_path)
    undos.add("proxy-off", [ENABLE])
    assert json.loads((tmp_path / FILE).read_text()) == {"proxy-off": [ENABLE]}
    assert Undos.read(tmp_path).open == {"proxy-off": [ENABLE]}
    undos.close("proxy-off")
    assert not (tmp_path / FILE).exists()


def test_heal_replays_what_a_crashed_suite_left_open(tmp_path: Path):
    control = Control()
    run = tmp_path / "upgrade" / "20260101T000000Z-7"
    run.mkdir(parents=True)
    steps = [
        {**ENABLE, "control": control.url},
        {"do": "remove-toxic", "control": control.url, "proxy": "api", "toxic": "answer-lost-closed"},
    ]
    Undos(run).add("both", steps)
    said = heal_all(tmp_path)
    assert control.asked == [
        ("POST", "/proxies/api", '{"enabled": true}'),
        ("DELETE", "/proxies/api/toxics/answer-lost-closed", ""),
    ]
    assert len(said) == 2
    assert not (run / FILE).exists()
    assert heal_all(tmp_path) == []


def test_heal_leaves_a_run_alone_that_still_goes_on(tmp_path: Path):
    run = tmp_path / "upgrade" / "20260101T000000Z-7"
    run.mkdir(parents=True)
    Undos.of_this_process(run, os.getpid()).add("proxy-off", [ENABLE])
    with pytest.raises(ChaosError, match="still runs"):
        heal_all(tmp_path)
    assert (run / FILE).exists()
    (run / SUITE_PID).unlink()
    assert "went with its testbed" in heal_all(tmp_path)[0]


def test_a_heal_that_is_refused_stays_open(tmp_path: Path):
    control = Control()
    control.say = 500
    run = tmp_path / "upgrade" / "20260101T000000Z-7"
    run.mkdir(parents=True)
    Undos(run).add("proxy-off", [{**ENABLE, "control": control.url}])
    with pytest.raises(ChaosError, match="refused"):
        heal_all(tmp_path)
    assert (run / FILE).exists()


def test_a_toxic_that_is_gone_is_healed():
    control = Control()
    control.say = 404
    step = {"do": "remove-toxic", "control": control.url, "proxy": "api", "toxic": "answer-lost-closed"}
    assert "it was gone" in replay(step)


def start(tmp_path: Path) -> dict[str, object]:
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    log, pid_file = str(tmp_path / "etcd.log"), str(tmp_path / "etcd.pid")
    return {"do": "start", "process": "etcd", "argv": argv, "log": log, "pid_file": pid_file}


def test_a_process_is_started_again_only_where_its_testbed_still_stands(tmp_path: Path):
    assert replay(start(tmp_path)) == "etcd went with its testbed"
    sibling = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        write_pid_file(tmp_path / "postgres.pid", sibling.pid)
        assert "was started again" in replay(start(tmp_path))
        pid = read_pid_file(tmp_path / "etcd.pid")
        assert pid is not None
        assert replay(start(tmp_path)) == "etcd runs"
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    finally:
        sibling.kill()
        sibling.wait()


def test_an_undo_that_nobody_knows_is_told_and_kept(tmp_path: Path):
    with pytest.raises(ChaosError, match="heal it by hand"):
        replay({"do": "pray"})
