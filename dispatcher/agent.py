"""The program inside the Pod: asks whether this attempt may run, runs the user's code, reports how it ended.

    python3 -I agent.py -- command args...

It needs Python >= 3.9 and the standard library, nothing else: it is copied alone into task images. What it promises:

* User code starts only after a dispatcher said `run` to this very process: row, epoch, pod uid and a nonce drawn
  here (R11). A refusal ends the agent with exit code 0 before user code started.
* Only a 409 problem document with `"should_terminate": true` is a refusal. 401, 404, 5xx, a redirect, a page of
  HTML, silence: ask the next replica, at most 10 s apart, 5 s a request in all (R14).
* User code runs in its own process group and dies with its agent (the guard below). It never gets the token.
* The lease (R15) is counted from *sending* the last acknowledged report, on a clock that runs through suspension;
  the group is dead by its end less the margin, even if the agent itself is frozen: the guard kills it.
* The end is reported only after the whole group was killed and waited for, until it is answered (R16). An agent
  that is stopped from outside reports `lost`.

Three processes: this one talks; the *code*, forked before anything else and held back at a gate until `run` came;
the *guard*, which kills the code's group when the pipe from the agent closes or the lease has run out. Both are
forked before the first thread and before the network modules are imported, so that they are small and fork is safe.
One file, longer than its neighbours: images take it in with one COPY.

Events go to stderr, one JSON line each. Exit code: the user code's own (128 + n for signal n); 0 refused;
124 the task's own timeout; 143 stopped from outside; 64 bad usage; 69 nobody answered within the patience.

Not kept from user code that shares the agent's uid: /proc/<agent>/environ, which holds the token. With it user code
can speak for its own attempt only.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPING = False
if TYPING:  # mypy's eyes only: importing typing would cost 3 ms of every start
    from collections.abc import Mapping, Sequence
    from typing import Any

REQUEST_S = 5.0  # R14: one request, from the look-up of the name to the last byte of the answer
APART_S = 10.0  # R14: rounds are at most this far apart
FIRST_BACKOFF_S = 0.5
ANSWER_BYTES = 64 * 1024
PATIENCE_S = 30 * 60.0  # R14: longer than any outage the product promises to ride out (window 15 min)
GRACE_S = 10.0  # SIGTERM to SIGKILL; well inside a Pod's default 30 s, which must also hold the report
FAREWELL_S = 10.0  # for the `lost` of an agent stopped before it knew whether it runs
TICK_S = 1.0  # select() does not count suspension: look at the clock at least this often

USAGE, UNANSWERED, RESCHEDULE = 64, 69, 75  # sysexits.h: EX_USAGE, EX_UNAVAILABLE, EX_TEMPFAIL
TIMED_OUT = 124  # as timeout(1) says it
STOPPED = 128 + signal.SIGTERM
FRESH_SIGNALS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ,
)  # fmt: skip


def clock() -> float:
    """Seconds on a clock that runs through suspension (R15), where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class BadUsage(Exception):
    """The environment or the command line is incomplete; the message is for a person."""


class Attempt:
    """What the Pod was told about itself, and the nonce of this process (R11)."""

    def __init__(self, environment: Mapping[str, str], argv: Sequence[str]) -> None:
        def needed(name: str) -> str:
            if not environment.get(name):
                raise BadUsage(f"{name} is not set: the agent is started by a Pod that the dispatcher made")
            return environment[name]

        def number(name: str, default: float) -> float:
            try:
                return float(environment.get(name) or default)
            except ValueError:
                raise BadUsage(f"{name} is no number: {environment[name]!r}") from None

        if len(argv) < 2 or argv[0] != "--":
            raise BadUsage("usage: agent.py -- command [args...]")
        self.command = list(argv[1:])
        row, epoch = needed("RIDEOUT_ROW"), needed("RIDEOUT_EPOCH")
        if not (row.isdecimal() and epoch.isdecimal()):
            raise BadUsage(f"RIDEOUT_ROW and RIDEOUT_EPOCH must be whole numbers, not {row!r} and {epoch!r}")
        self.row, self.epoch = int(row), int(epoch)
        self.token = needed("RIDEOUT_TOKEN")
        self.pod_uid = needed("RIDEOUT_POD_UID")
        self.urls = [url.strip().rstrip("/") for url in needed("RIDEOUT_DISPATCHERS").split(",") if url.strip()]
        if not self.urls or not all(url.startswith(("http://", "https://")) for url in self.urls):
            raise BadUsage("RIDEOUT_DISPATCHERS must list http:// or https:// URLs, comma separated")
        for _ in range(int(jitter() * len(self.urls))):  # not everybody asks the same replica first
            self.urls.append(self.urls.pop(0))
        self.patience_s = number("RIDEOUT_AGENT_PATIENCE_S", PATIENCE_S)
        self.grace_s = number("RIDEOUT_AGENT_GRACE_S", GRACE_S)
        self.timeout_s = number("RIDEOUT_TIMEOUT_S", float("inf"))
        self.nonce = os.urandom(16).hex()
        self.user_environment = {k: v for k, v in environment.items() if k != "RIDEOUT_TOKEN"}
        self.user_environment["RIDEOUT_NONCE"] = self.nonce

    def identity(self) -> dict[str, Any]:
        return {"row": self.row, "epoch": self.epoch, "pod_uid": self.pod_uid, "nonce": self.nonce}


def event(attempt: Attempt, name: str, **fields: Any) -> None:
    """One JSON line on stderr, in one write; a closed stderr is no reason to stop working."""
    import json

    line = json.dumps({"agent": name, **fields, **attempt.identity()}, separators=(",", ":")) + "\n"
    try:
        os.write(2, line.encode())
    except OSError:
        pass


class Waker:
    """What ends a wait: a signal (the interpreter writes its number), a child's end (SIGCHLD), a request's thread."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self.stopping = False
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def __call__(self) -> None:
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # full: the reader has enough to wake for

    def wait(self, until: float) -> None:
        select.select([self._read], [], [], min(TICK_S, max(0.0, until - clock())))
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            pass


class Code:
    """The user's process group: forked at once, held at a gate, watched by a guard, ended as a whole."""

    def __init__(self, attempt: Attempt) -> None:
        gate, self._gate = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            self._become_user_code(gate, attempt)
        os.close(gate)
        try:
            os.setpgid(self.pid, self.pid)  # both sides do it, so that neither has to wait for the other
        except OSError:
            pass
        life, self._life = os.pipe()
        self.guard = os.fork()
        if self.guard == 0:
            self._become_guard(life)
        os.close(life)
        self.status: int | None = None  # the leader's wait status
        self.guarded = True

    def _become_user_code(self, gate: int, attempt: Attempt) -> None:
        try:
            signal.set_wakeup_fd(-1)
            for number in FRESH_SIGNALS:  # whatever started the agent may have ignored some of them
                signal.signal(number, signal.SIG_DFL)
            os.setpgid(0, 0)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            if os.read(gate, 1) == b"":
                os._exit(0)  # the agent was refused or is gone: this code never starts
            os.execvpe(attempt.command[0], attempt.command, attempt.user_environment)
        except OSError as error:
            os.write(2, f"agent: cannot run {attempt.command[0]!r}: {error.strerror}\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)  # as a shell says it
        finally:
            os._exit(126)

    def _become_guard(self, life: int) -> None:
        """Kill the group when the agent is gone (its end of the pipe closes) or the lease has run out (R15)."""
        try:
            signal.set_wakeup_fd(-1)
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            null = os.open(os.devnull, os.O_RDWR)
            for fd, target in ((null, 0), (null, 1), (null, 2), (life, 3)):
                os.dup2(fd, target)
            os.closerange(4, 256)  # the gate and the agent's end of this very pipe above all
            kill_at, heard = 0.0, b""
            while not kill_at or clock() < kill_at:
                if select.select([3], [], [], TICK_S if kill_at else None)[0]:
                    more = os.read(3, 4096)
                    if not more:
                        break
                    *lines, heard = (heard + more).split(b"\n")
                    if b"done" in lines:
                        os._exit(0)
                    kill_at = float(lines[-1]) if lines else kill_at
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the group had ended
        finally:
            os._exit(0)

    def lease(self, kill_at: float) -> None:
        """Tell the guard when the group must be dead, on this machine's `clock()`."""
        self._tell(b"%.3f\n" % kill_at)

    def start(self) -> None:
        os.write(self._gate, b"!")

    def signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def ended(self) -> bool:
        """Whether the group's leader has ended. Reaps it, and orphans that became ours (the agent is often PID 1)."""
        self._reap()
        return self.status is not None

    def _reap(self) -> bool:
        """Take in the children that ended; whether any are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.status = status
            elif pid == self.guard:
                self.guarded = False

    def end(self, waker: Waker) -> int:
        """Kill whatever is left of the group, wait until nothing of it runs (R16), dismiss the guard; exit code."""
        os.close(self._gate)
        while not self.ended() or group_runs(self.pid):
            self.signal(signal.SIGKILL)
            waker.wait(clock() + 0.02)
        if os.getpid() == 1:  # a container of our own: what left the group by setsid() ends too, and the guard
            while self._reap():
                try:
                    os.kill(-1, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                waker.wait(clock() + 0.02)
        else:
            self._tell(b"done\n")
        assert self.status is not None
        code = os.waitstatus_to_exitcode(self.status)
        return code if code >= 0 else 128 - code

    def _tell(self, line: bytes) -> None:
        try:
            os.write(self._life, line)
        except BrokenPipeError:
            self.guarded = False


def group_runs(group: int) -> bool:
    """Whether a process of the group still executes. A zombie nobody reaps does not, but kill(2) still finds it."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    if not os.path.isdir("/proc/self"):
        return True
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, _, pgrp = file.read().rpartition(b")")[2].split()[:3]
            except OSError:
                continue  # it has just ended
            if int(pgrp) == group and state not in (b"Z", b"X"):
                return True
    return False


class Answer:
    """What one request came to: `accepted`, `refused`, or neither, which is no answer: ask again (R14)."""

    def __init__(self, error: str = "", *, accepted: bool = False, refused: bool = False, **fields: Any) -> None:
        self.error, self.accepted, self.refused, self.fields = error, accepted, refused, fields


DECISIONS = {"running": "run", "heartbeat": "renewed", "finished": "recorded"}


def judge(what: str, status: int, content_type: str, body: bytes) -> Answer:
    """Read an HTTP answer to a report. Only what a dispatcher says in so many words decides anything (R14)."""
    import json

    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return Answer(f"HTTP {status} without a JSON object")
    if status == 409 and content_type.partition(";")[0].strip().lower() == "application/problem+json":
        if said.get("should_terminate") is True:
            return Answer(refused=True, reason=str(said.get("reason") or said.get("detail") or ""))
        return Answer(f"HTTP 409 {said.get('detail', '')}".rstrip())
    if status == 200 and said.get("decision") == DECISIONS[what]:
        if what == "finished" or seconds(said.get("lease_s")):
            return Answer(accepted=True, **said)
        return Answer("HTTP 200 without a lease")
    return Answer(f"HTTP {status} {said.get('title', '')}".rstrip())


def seconds(value: Any, limit: float = 1e9) -> float | None:
    """A duration out of an answer: a positive number below the limit, else None."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < limit
    return float(value) if fits else None


class Lease:
    """R15: until when user code may run, counted from *sending* the report that was acknowledged."""

    def __init__(self, sent_at: float, grace_s: float, fields: Mapping[str, Any]) -> None:
        lease_s = float(fields["lease_s"])
        usable_s = lease_s - (seconds(fields.get("margin_s"), lease_s) or lease_s / 6)  # 15 of 90 s
        self.beat_at = sent_at + (seconds(fields.get("heartbeat_s"), usable_s) or usable_s / 4)
        self.kill_at = sent_at + usable_s
        self.term_at = self.kill_at - min(grace_s, usable_s / 4)


class Request:
    """One POST in a thread of its own: the only way to a deadline that also covers the look-up of a name."""

    def __init__(self, url: str, path: str, token: str, body: bytes, done: Waker) -> None:
        import http.client  # 20 ms, and after the forks: neither the code nor the guard carries it
        import threading
        import urllib.parse

        parts = urllib.parse.urlsplit(url)
        https = parts.scheme == "https"
        self._new = http.client.HTTPSConnection if https else http.client.HTTPConnection
        self._address = (parts.hostname or "", parts.port)
        self._path, self._body, self._done = parts.path.rstrip("/") + path, body, done
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Connection": "close",
        }
        self._socket: Any = None
        self.answered: tuple[int, str, bytes] | None = None
        self.error: str | None = None
        self.give_up_at = clock() + REQUEST_S
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self.answered = self._post()
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
        self._done()

    def _post(self) -> tuple[int, str, bytes]:
        connection = self._new(*self._address, timeout=REQUEST_S)
        try:
            connection.connect()
            self._socket = connection.sock
            connection.request("POST", self._path, self._body, self._headers)
            response = connection.getresponse()  # a redirect is an answer like any other: never followed
            body = response.read(ANSWER_BYTES + 1)
            if len(body) > ANSWER_BYTES:
                raise ValueError(f"an answer of more than {ANSWER_BYTES} bytes")
            return response.status, response.getheader("Content-Type", ""), body
        finally:
            connection.close()

    def over(self) -> bool:
        return self.answered is not None or self.error is not None or clock() >= self.give_up_at

    def abandon(self) -> None:
        """Wake a thread that hangs in its socket, so that it ends."""
        import socket

        try:
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Report:
    """One report, sent to every replica in turn until one answers (R14, R16). `step()` never blocks."""

    def __init__(self, attempt: Attempt, waker: Waker, what: str, **fields: Any) -> None:
        import json

        self._attempt, self._waker, self._what = attempt, waker, what
        self._path = f"/v1/attempts/{attempt.row}/{what}"
        identity = attempt.identity()
        del identity["row"]
        self._body = json.dumps({**identity, **fields}).encode()
        self._request: Request | None = None
        self._tries = 0
        self.sent_at = 0.0  # of the newest request; 0: none was sent
        self.wake_at = 0.0
        if what != "heartbeat":
            event(attempt, "report", what=what, **fields)

    def step(self) -> Answer | None:
        """The answer, or None: call again at `wake_at`, or when woken."""
        if self._request is not None:
            if not self._request.over():
                return None
            answer = self._take(self._request)
            self._request = None
            if answer.accepted or answer.refused:
                if answer.refused or self._what != "heartbeat":
                    name = "refused" if answer.refused else "accepted"
                    event(self._attempt, name, what=self._what, **answer.fields)
                return answer
            self._ask_again(answer.error)
        if clock() >= self.wake_at:
            try:
                self.sent_at = clock()  # before the sending: a lease must not begin later than the server thinks
                self._request = Request(self._attempt.urls[0], self._path, self._attempt.token, self._body, self._waker)
                self.wake_at = self._request.give_up_at
            except (RuntimeError, ValueError) as error:  # no thread to be had; a URL that is none
                self._ask_again(f"{type(error).__name__}: {error}")
        return None

    def _take(self, request: Request) -> Answer:
        if request.answered is not None:
            return judge(self._what, *request.answered)
        request.abandon()
        return Answer(request.error or f"no whole answer within {REQUEST_S:g} s")

    def _ask_again(self, error: str) -> None:
        self._tries += 1
        self._attempt.urls.append(self._attempt.urls.pop(0))  # the replica that answered last stays the first to ask
        rounds, place = divmod(self._tries, len(self._attempt.urls))
        pause = 0.0 if place else jitter() * min(APART_S, FIRST_BACKOFF_S * 2 ** min(rounds, 10))
        self.wake_at = clock() + pause
        event(self._attempt, "retry", what=self._what, error=error)


def jitter() -> float:
    """0 to 1, evenly (`random` would cost 4 ms)."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


def outcome_of(code: int) -> str:
    return {0: "success", RESCHEDULE: "reschedule"}.get(code, "failure")


class Life:
    """The main path: may I run → run under a lease → how it ended."""

    def __init__(self, attempt: Attempt, waker: Waker, code: Code) -> None:
        self.attempt, self.waker, self.code = attempt, waker, code
        self.timeout_at = float("inf")

    def live(self) -> int:
        running = Report(self.attempt, self.waker, "running")
        answer = self.ask(running, self.attempt.patience_s)
        lease = Lease(running.sent_at, self.attempt.grace_s, answer.fields) if answer.accepted else None
        if lease is None or self.waker.stopping:
            self.code.end(self.waker)  # closes the gate: it never started
            if answer.refused:
                return 0
            if not self.waker.stopping:
                return UNANSWERED
            if running.sent_at:  # it may have been accepted: say that nothing runs
                self.finish("lost", None, FAREWELL_S)
            return STOPPED
        return self.run(lease)

    def ask(self, report: Report, patience_s: float) -> Answer:
        """The answer to RUNNING, or an Answer that is none: stopped, or the patience is over."""
        give_up_at = clock() + patience_s
        while not self.waker.stopping and clock() < give_up_at:
            answer = report.step()
            if answer is not None and answer.accepted:
                if clock() < Lease(report.sent_at, self.attempt.grace_s, answer.fields).term_at:
                    return answer
                report.wake_at = 0.0  # the answer came when its lease was over (a suspended machine): ask again
            elif answer is not None:
                return answer
            self.waker.wait(min(report.wake_at, give_up_at))
        return Answer("nobody answered")

    def run(self, lease: Lease) -> int:
        """Run user code, renew the lease, end the group when somebody must (R15)."""
        event(self.attempt, "user-start")
        self.code.lease(lease.kill_at)
        self.code.start()
        self.timeout_at = clock() + self.attempt.timeout_s
        why, kill_at, refused = "", 0.0, False
        beat: Report | None = None
        while not self.code.ended():
            if not why:
                why = self.reason_to_stop(lease, refused)
                if why:
                    event(self.attempt, "stopping", why=why)
                    self.code.signal(signal.SIGTERM)
                    kill_at = min(clock() + self.attempt.grace_s, lease.kill_at)
            elif clock() >= kill_at:
                self.code.signal(signal.SIGKILL)
                kill_at = clock() + TICK_S
            if beat is None and clock() >= lease.beat_at:
                beat = Report(self.attempt, self.waker, "heartbeat")
            answer = beat.step() if beat is not None else None
            if beat is not None and answer is not None:
                refused = answer.refused
                if answer.accepted:
                    lease = Lease(beat.sent_at, self.attempt.grace_s, answer.fields)
                    self.code.lease(lease.kill_at)
                    beat = None
            if refused:
                beat, lease.beat_at = None, float("inf")
            next_end = kill_at or min(lease.term_at, self.timeout_at)
            self.waker.wait(min(next_end, beat.wake_at if beat else lease.beat_at))
        code = self.code.end(self.waker)
        if not why and code == 128 + signal.SIGKILL and (clock() >= lease.kill_at or not self.code.guarded):
            why = "lease"  # the guard did it while this process was frozen
        event(self.attempt, "user-end", code=code)
        if why == "refused":
            return 0
        if why == "timeout":  # the task's own fault: a failed try, never an infra re-place
            code = TIMED_OUT
            why = ""
        answer = self.finish("lost" if why else outcome_of(code), code)
        if answer.refused:
            return 0
        return STOPPED if why == "stopped" else code

    def reason_to_stop(self, lease: Lease, refused: bool) -> str:
        if refused:
            return "refused"
        if self.waker.stopping:
            return "stopped"
        if clock() >= lease.term_at:
            return "lease"
        if clock() >= self.timeout_at:
            return "timeout"
        return "" if self.code.guarded else "unguarded"  # it must not outlive its agent: nobody would see to it

    def finish(self, outcome: str, code: int | None, patience_s: float = float("inf")) -> Answer:
        """Report the end until it is answered (R16), past the lease too; a refusal is an answer."""
        fields = {"outcome": outcome, "exit_code": code, "reschedule_after_s": None}
        report = Report(self.attempt, self.waker, "finished", **fields)
        give_up_at = clock() + patience_s
        while clock() < give_up_at:
            answer = report.step()
            if answer is not None:
                return answer
            self.waker.wait(min(report.wake_at, give_up_at))
        return Answer("nobody answered")


def main(argv: Sequence[str]) -> int:
    try:
        attempt = Attempt(os.environ, argv)
    except BadUsage as error:
        os.write(2, f"agent: {error}\n".encode())
        return USAGE
    waker = Waker()
    code = Code(attempt)
    if not any(url.startswith("https://") for url in attempt.urls):
        sys.modules["ssl"] = None  # type: ignore[assignment]  # http.client does without it, and without its 9 ms
    return Life(attempt, waker, code).live()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
