"""What has to be put right again, on disk before anything is broken.

Each run keeps `undo.json` in its directory: the suite's own process, and for every injected fault the steps that
heal it. A step that was done is taken out. `chaos heal` replays what crashed suites left open, newest first.

An embedded testbed dies with its suite (its reaper sees to that), so usually what is left open went with it; this is
checked, not assumed: where the proxy still answers or the control plane still runs, the steps are replayed.
"""

import json
import os
import signal
import ssl
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

from chaos.errors import ChaosError
from chaos.faults import UndoStep
from chaos.testbed.reaper import LIMIT_S as REAPER_LIMIT_S
from chaos.testbed.reaper import read_pid_file, start_time, write_pid_file

FILE = "undo.json"
SUITE_PID = "suite.pid"
CALL_DEADLINE_S = 5.0
_direct = build_opener(ProxyHandler({}))  # loopback must not go through the user's proxy


@dataclass
class Undos:
    """The open undos of one run. Every change is on disk before the method returns."""

    directory: Path
    open: dict[str, list[UndoStep]] = field(default_factory=dict)

    @classmethod
    def of_this_process(cls, directory: Path, pid: int) -> Self:
        """Undos of a run that this process is about to make."""
        write_pid_file(directory / SUITE_PID, pid)
        return cls(directory)

    @classmethod
    def read(cls, directory: Path) -> Self:
        try:
            return cls(directory, json.loads((directory / FILE).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls(directory)
        except (OSError, ValueError) as error:
            raise ChaosError(f"cannot read the undos {directory / FILE}: {error}") from error

    def add(self, name: str, steps: list[UndoStep]) -> None:
        """Write the undo of a fault down; to be called before it is injected."""
        self.open[name] = steps
        self._save()

    def close(self, name: str) -> None:
        """The fault was healed."""
        self.open.pop(name, None)
        self._save()

    def will_start(self, process: str) -> bool:
        """Whether an open fault has stopped this process, and is going to start it again."""
        return any(step.get("process") == process for steps in self.open.values() for step in steps)

    @property
    def suite_pid(self) -> int | None:
        """The run's suite, if it still runs."""
        return read_pid_file(self.directory / SUITE_PID)

    def _save(self) -> None:
        path = self.directory / FILE
        if not self.open:
            path.unlink(missing_ok=True)
            return
        temporary = path.with_suffix(".tmp")
        temporary.touch(mode=0o600)  # how a dispatcher is started again tells its keys
        temporary.write_text(json.dumps(self.open, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)


def heal_all(runs: Path) -> list[str]:
    """Replay every open undo under `runs`; returns one line for a person about each step.

    Raises ChaosError where a suite still runs (it heals by itself) or a step could not be done.
    """
    said: list[str] = []
    for file in sorted(runs.glob(f"*/*/{FILE}"), reverse=True):
        undos = Undos.read(file.parent)
        if (pid := undos.suite_pid) is not None:
            raise ChaosError(
                f"{file.parent} still runs (pid {pid}) and heals by itself; stop it with Ctrl-C or SIGTERM"
            )
        for name, steps in list(undos.open.items()):
            said += [f"{file.parent.name}: {name}: {replay(step)}" for step in steps]
            undos.close(name)
    return said


def _let_the_reaper_finish(pids: Path) -> None:
    """A suite that was killed a moment ago has a reaper that still ends its testbed: nothing is started into that."""
    end = time.monotonic() + REAPER_LIMIT_S + 2
    while time.monotonic() < end and any(read_pid_file(file) is not None for file in pids.glob("*.pid")):
        time.sleep(0.1)


def replay(step: UndoStep) -> str:
    """Do one step; says what was done. Raises ChaosError where it cannot be done though its object is there."""
    match step:
        case {"do": "start", "process": name, "argv": argv, "log": log, "pid_file": pid_file}:
            return _start(name, argv, Path(log), Path(pid_file), step.get("env"), step.get("cwd") or "/")
        case {"do": "continue", "process": name, "pid_file": pid_file}:
            return _continue(name, Path(pid_file))
        case {"do": "enable", "control": control, "proxy": proxy}:
            return _call(control, "POST", f"/proxies/{quote(proxy)}", {"enabled": True}, f"proxy {proxy} is on again")
        case {"do": "remove-toxic", "control": control, "proxy": proxy, "toxic": toxic}:
            path = f"/proxies/{quote(proxy)}/toxics/{quote(toxic)}"
            return _call(control, "DELETE", path, None, f"toxic {toxic} is off proxy {proxy}")
        case {"do": "call", "method": method, "url": url, "body": body, "tls": tls, "done": done}:
            try:
                return _call(url, method, "", body, done, _direct if tls is None else _with_tls(**tls))
            except FileNotFoundError:
                return f"the keys to {url} went with their testbed"
        case {"do": "remove-file", "file": file, "done": done}:
            Path(file).unlink(missing_ok=True)
            return str(done)
        case _:
            raise ChaosError(f"an undo of an unknown kind: {step!r}; heal it by hand, then remove it from {FILE}")


def _start(name: str, argv: list[str], log: Path, pid_file: Path, env: dict[str, str] | None, cwd: str) -> str:
    if read_pid_file(pid_file) is not None:
        return f"{name} runs"
    siblings = [file.stem for file in pid_file.parent.glob("*.pid") if read_pid_file(file) is not None]
    if not siblings:
        return f"{name} went with its testbed"
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )
    except OSError as error:
        raise ChaosError(f"cannot start {name} again: {error}", log=log) from error
    write_pid_file(pid_file, child.pid)
    assert start_time(child.pid) is not None or child.poll() is not None
    return f"{name} was started again (pid {child.pid})"


def _continue(name: str, pid_file: Path) -> str:
    pid = read_pid_file(pid_file)
    if pid is None:
        return f"{name} went with its testbed"
    os.killpg(pid, signal.SIGCONT)
    return f"{name} goes on (pid {pid})"


def _with_tls(authority: str, certificate: str, key: str) -> OpenerDirector:
    """Speaks to the apiserver as the owner of a client certificate; all are paths. Raises FileNotFoundError."""
    tls = ssl.create_default_context(cafile=authority)
    tls.load_cert_chain(certificate, key)
    return build_opener(ProxyHandler({}), HTTPSHandler(context=tls))


def _call(
    control: str, method: str, path: str, body: dict[str, Any] | None, done: str, opener: OpenerDirector = _direct
) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = Request(
        control + path, data, {"content-type": "application/json", "user-agent": "rideout"}, method=method
    )
    try:
        with opener.open(request, timeout=CALL_DEADLINE_S):
            return done
    except HTTPError as error:
        if error.code == 404:
            return f"{done} (it was gone)"
        raise ChaosError(f"{control} refused {method} {path}: {error.code}") from error
    except (URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ConnectionRefusedError):
            return f"{control} went with its testbed"
        raise ChaosError(f"{control} did not answer: {reason}") from error
