"""Records of runs that never happened: `a_good_run()` and ways to spoil it (`tests/checkers/spoil.py`).

A run is played out by a small model of a dispatcher that keeps the rules (its own, written from rules.md, so that
neither the product's nor the judge's code is in it), under the schedule of the upgrade scenario: warm-up, a stopped
control plane, recovery, a short answer-lost phase, drain. What the witnesses would have written is kept as plain
lists that a test may change before it writes them to disk:

    run = a_good_run(lanes=("tick",), profile="quick", load=FEW)
    lose(run, "tick", run.pick("tick", "during"))
    records = run.records()                    # or run.write(tmp_path), then Records.load

The same arguments give the same run, byte for byte.
"""

import csv
import random
import tempfile
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from chaos.records import Records

Event = dict[str, Any]

STARTED_WALL = 1_790_000_000.0
STARTED_MONO = 5_000.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """When what happens, in seconds on the run clock. `down` to `up`: no create gets through."""

    steady: float
    inject: float
    down: float
    fired: float
    heal: float
    up: float
    healed: float
    lost_inject: float
    lost_heal: float
    lost_healed: float
    drain: float
    collect: float
    end: float


@dataclass(frozen=True, slots=True)
class Constants:
    """The settings of the dispatchers, in seconds (rules.md, Defaults and the quick profile)."""

    hold_min: float
    hold_max: float
    lead: float
    backoff: float
    attempts: int
    recovery: float
    timeline: Timeline
    settings: dict[str, float]


FULL = Constants(
    hold_min=5,
    hold_max=60,
    lead=3,
    backoff=5,
    attempts=6,
    recovery=60,
    timeline=Timeline(10, 20, 20.4, 21, 261, 268, 268.3, 345, 352, 352.3, 356, 430, 436),
    settings={
        "window_s": 900,
        "hold_min_s": 5,
        "hold_max_s": 60,
        "offer_lead_s": 3,
        "create_deadline_s": 15,
        "tick_s": 1,
        "attempts": 6,
        "backoff_s": 5,
        "lease_s": 90,
    },
)
QUICK = Constants(
    hold_min=0.5,
    hold_max=6,
    lead=0.3,
    backoff=0.5,
    attempts=6,
    recovery=10,
    timeline=Timeline(3, 5, 5.2, 5.4, 29.4, 32, 32.3, 46, 49, 49.3, 51, 70, 74),
    settings={
        "window_s": 90,
        "hold_min_s": 0.5,
        "hold_max_s": 6,
        "offer_lead_s": 0.3,
        "create_deadline_s": 5,
        "tick_s": 0.1,
        "attempts": 6,
        "backoff_s": 0.5,
        "lease_s": 30,
    },
)
PROFILES = {"full": FULL, "quick": QUICK}

POLICIES = {"control": "attempts-only"}


@dataclass(frozen=True, slots=True)
class Load:
    """How many tasks a lane gets: before the outage, at its start, in it, after it, and in the answer-lost phase."""

    before: int = 8
    early: int = 24
    during: int = 40
    after: int = 10
    lost: int = 6


PLENTY = Load()
FEW = Load(before=2, early=2, during=3, after=2, lost=2)


@dataclass
class SyntheticRun:
    """What the witnesses would have written. Times are run-clock seconds until `write` turns them into a file's own."""

    info: Event
    constants: Constants
    history: list[Event] = field(default_factory=list)
    ledger: list[Event] = field(default_factory=list)
    """With "t" (run clock) where the file has "t_mono"."""
    audit: list[Event] = field(default_factory=list)
    """{"lane", "row", "epoch", "try", "received", "answered", "code", "reason", "message", "pod"}."""
    kinds: dict[str, dict[int, str]] = field(default_factory=dict)
    """Per lane: each row's part of the load ("before", "early", "during", "after", "lost")."""
    tails: dict[str, bytes] = field(default_factory=dict)
    """Bytes to put at the end of a file as they are: a torn line."""

    @property
    def times(self) -> Timeline:
        return self.constants.timeline

    def pick(self, lane: str, kind: str, nth: int = 0) -> int:
        """The id of the nth row of that part of the load."""
        return [row for row, of in self.kinds[lane].items() if of == kind][nth]

    def events(self, op: str, **wanted: Any) -> list[Event]:
        """The history's events of that op whose fields are as wanted."""
        return [e for e in self.history if e["op"] == op and all(e.get(n) == v for n, v in wanted.items())]

    def creates(self, lane: str, row: int) -> list[Event]:
        return [one for one in self.audit if (one["lane"], one["row"]) == (lane, row)]

    def code(self, lane: str, row: int, event: str) -> list[Event]:
        """The ledger's lines of a row: event is start, end or exit."""
        return [one for one in self.ledger if (one["lane"], one["row"], one["event"]) == (lane, row, event)]

    def say(self, t: float, type_: str, process: str, op: str, **fields: Any) -> None:
        self.history.append({"t": round(t, 6), "type": type_, "process": process, "op": op, **fields})

    def write(self, directory: Path) -> Path:
        """Write the run's directory as the suite would leave it; returns it."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "run.json").write_bytes(orjson.dumps(self.info, option=orjson.OPT_INDENT_2) + b"\n")
        self._lines(directory / "history.jsonl", sorted(self.history, key=lambda event: event["t"]))
        by_time = sorted(self.ledger, key=lambda event: event["t"])
        self._lines(directory / "ledger.jsonl", ({**_without_t(e), "t_mono": _at(e, STARTED_MONO)} for e in by_time))
        self._lines(directory / "audit.jsonl", map(self._audit_event, sorted(self.audit, key=lambda e: e["answered"])))
        self._samples(directory / "samples.csv")
        return directory

    def records(self) -> Records:
        with tempfile.TemporaryDirectory() as directory:
            return Records.load(self.write(Path(directory)))

    def _lines(self, path: Path, events: Iterable[Event]) -> None:
        with path.open("wb") as file:
            file.writelines(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE) for event in events)
            file.write(self.tails.get(path.name, b""))

    def _audit_event(self, one: Event) -> Event:
        status: Event = {"metadata": {}, "code": one["code"]}
        if one["code"] != 201:
            status |= {"status": "Failure", "message": one["message"], "reason": one["reason"]}
        labels = {"rideout.dev/row": str(one["row"]), "rideout.dev/epoch": str(one["epoch"])}
        event: Event = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Request",
            "auditID": one.get("id") or str(uuid.uuid5(uuid.NAMESPACE_OID, orjson.dumps(one).decode())),
            "stage": "ResponseComplete",
            "requestURI": f"/api/v1/namespaces/tasks-{one['lane']}/pods",
            "verb": "create",
            "userAgent": f"rideout-dispatcher/0.1.0 (row={one['row']}; epoch={one['epoch']})",
            "objectRef": {"resource": "pods", "namespace": f"tasks-{one['lane']}", "apiVersion": "v1"},
            "responseStatus": status,
            "requestReceivedTimestamp": _stamp(one["received"]),
            "stageTimestamp": _stamp(one["answered"]),
        }
        if one["code"] not in (401, 403):  # those are refused before the body is read
            metadata = {"name": one["pod"], "labels": {**labels, "rideout.dev/try": str(one["try"])}}
            event["requestObject"] = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}
        return event

    def _samples(self, path: Path) -> None:
        """One line a second and lane, counted from the records themselves."""
        fields = ["t", "lane", "scheduled", "queued", "running", "success", "failed", "holding", "oldest_due_age_s"]
        with path.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow([*fields, "api_new", "api_reused", "webhook", "leader_term"])
            for lane in self.info["lanes"]:
                dues = {e["row"]: e["due"] for e in self.events("submit", type="ok", lane=lane)}
                starts = {e["row"]: e["t"] for e in self.ledger if e["event"] == "start" and e["lane"] == lane}
                ends = {e["row"]: e["t"] for e in self.ledger if e["event"] == "end" and e["lane"] == lane}
                failed = {
                    e["row"]: max(c["ended"] for c in self.events("create", lane=lane, row=e["row"]))
                    for e in self.events("row", lane=lane, state="failed")
                    if self.events("create", lane=lane, row=e["row"])
                }
                for second in range(int(self.times.collect)):
                    over = sum(at <= second for at in ends.values())
                    gone = sum(at <= second for at in failed.values())
                    running = sum(at <= second for at in starts.values()) - over
                    waiting = [
                        second - due
                        for row, due in dues.items()
                        if due <= second < min(starts.get(row, 1e9), failed.get(row, 1e9))
                    ]
                    up = int(not self.times.down <= second < self.times.up)
                    counts = [len(waiting), 0, running, over, gone, 0 if up else len(waiting)]
                    out.writerow([second, lane, *counts, round(max(waiting, default=0.0), 3), up, up, 1, 1])


def a_good_run(
    *,
    lanes: tuple[str, ...] = ("buffered", "tick", "control"),
    profile: str = "full",
    load: Load = PLENTY,
    seed: int = 7,
    startup_403s: int = 1,
    scenario: str = "upgrade",
    probe_every: float = 0.25,
    window_s: float | None = None,
) -> SyntheticRun:
    """A run in which every rule is kept. `startup_403s` rows a lane meet the RBAC gap of the restarted apiserver."""
    constants = PROFILES[profile]
    run = SyntheticRun(_run_json(constants, lanes, profile, seed, scenario, load), constants)
    if window_s is not None:
        run.info["settings"]["window_s"] = window_s
    _suite(run, probe_every)
    for lane in lanes:
        _LanePlay(run, lane, random.Random(f"{seed}/{lane}"), startup_403s).play(load, random.Random(seed))
    return run


def _run_json(
    constants: Constants, lanes: tuple[str, ...], profile: str, seed: int, scenario: str, load: Load
) -> Event:
    enough = load == PLENTY
    budgets: Event = {"recovery_s": constants.recovery}
    if not enough:  # a scenario may ask for less; small stored histories do
        budgets |= {"due_before": 1, "due_during": 3, "due_after": 1, "opening_due": 1, "due_answer_lost": 1}
    return {
        "schema": 1,
        "scenario": scenario,
        "profile": profile,
        "cluster": "local",
        "kubernetes": "v1.37.2",
        "seed": seed,
        "started_wall": STARTED_WALL,
        "started_mono": STARTED_MONO,
        "lanes": {
            lane: {
                "mode": "buffered" if lane == "buffered" else "tick",
                "policy": POLICIES.get(lane, "window"),
                "replicas": 2 if lane == "buffered" else 1,
                "namespace": f"tasks-{lane}",
                "urls": [f"http://127.0.0.1:{18080 + number}"],
            }
            for number, lane in enumerate(lanes)
        },
        "budgets": budgets,
        "settings": dict(constants.settings),
        "claim": "A control-plane upgrade is ridden out. Every task due in it runs once, soon after the return.",
        "command": f"make chaos-upgrade SEED={seed}",
    }


def _suite(run: SyntheticRun, probe_every: float) -> None:
    """Phases, faults and probes."""
    at = run.times
    for name, t in (
        ("prepare", 0.0),
        ("warm-up", 0.5),
        ("steady-state", at.steady),
        ("inject", at.inject),
        ("hold", at.fired),
        ("heal", at.heal),
        ("recovery", at.healed),
        ("answer-lost", at.lost_inject),
        ("drain", at.drain),
        ("collect", at.collect),
        ("check", at.end),
    ):
        run.say(t, "info", "suite", "phase", phase=name)
    _fault(run, "control-plane-stop", at.inject, at.fired, at.heal, at.healed)
    _fault(run, "answer-lost", at.lost_inject, at.lost_inject + 0.1, at.lost_heal, at.lost_healed)
    second = at.healed % probe_every + 0.01  # so that the one just after the return is accepted
    while second < at.drain:
        type_, code, cause = _probed(at, second)
        for lane in run.info["lanes"]:
            fields = {"lane": lane, "connection": "new", "cause": cause, "code": code}
            run.say(second, type_, "probe", "probe", **fields, started=round(second - 0.02, 6))
        second = round(second + probe_every, 6)


def _probed(at: Timeline, t: float) -> tuple[str, int | None, str | None]:
    if at.down <= t < at.up:
        return "info", None, "connection refused"
    if at.up <= t < at.healed:
        return "fail", 403, "403 Forbidden"
    if at.lost_inject <= t < at.lost_heal:
        return "info", None, "connection closed"
    return "ok", 201, None


def _fault(run: SyntheticRun, name: str, inject: float, fired: float, heal: float, healed: float) -> None:
    for step, begin, done, evidence in (
        ("inject", inject, inject + 0.05, {}),
        ("confirm_fired", inject + 0.06, fired + 0.1, {"at": fired}),
        ("heal", heal, heal + 0.05, {}),
        ("confirm_healed", heal + 0.06, healed + 0.1, {"at": healed}),
    ):
        run.say(begin, "invoke", "suite", "fault", fault=name, step=step)
        run.say(done, "ok", "suite", "fault", fault=name, step=step, evidence=evidence)


class _LanePlay:
    """One lane's dispatcher, agents and user code."""

    def __init__(self, run: SyntheticRun, lane: str, chance: random.Random, startup_403s: int) -> None:
        self.run, self.lane, self.chance = run, lane, chance
        self.constants, self.at = run.constants, run.times
        self.replica = f"{lane}/{lane}-1"
        self.only_attempts = POLICIES.get(lane) == "attempts-only"
        self.forbidden_left = startup_403s
        run.kinds[lane] = {}

    def play(self, load: Load, due: random.Random) -> None:
        at = self.at
        early = min(20.0, at.heal - at.fired - self.constants.backoff * 31)
        spans = {
            "before": (at.steady, at.inject - 1),
            "early": (at.fired + 0.1, at.fired + early),
            "during": (at.fired + early, at.up - 0.5),
            "after": (at.healed + 1, at.lost_inject - 1),
            "lost": (at.lost_inject + 0.2, at.lost_heal - 0.5),
        }
        row, first_ones = 0, self.forbidden_left
        for kind, (begin, end) in spans.items():
            for number in range(getattr(load, kind)):
                row += 1
                self.run.kinds[self.lane][row] = kind
                at_due = round(due.uniform(begin, end), 3)
                if kind == "during" and number < first_ones:
                    at_due = at.up + 0.01  # it will be the first to meet the apiserver, before RBAC has synced
                self._task(row, at_due, 2 if row % 10 == 0 else 0)

    def _task(self, row: int, due: float, retries: int) -> None:
        told = {"lane": self.lane, "key": f"{self.lane}-{row:04d}", "due": due}
        self.run.say(max(due - 2, 0.6), "invoke", "load", "submit", row=None, **told)
        self.run.say(max(due - 1.99, 0.61), "ok", "load", "submit", row=row, **told)
        state, reason, epoch, attempts = self._dispatch(row, due)
        self.run.say(
            self.at.collect + 1,
            "info",
            "suite",
            "row",
            lane=self.lane,
            row=row,
            key="task",
            state=state,
            reason=reason,
            try_number=1,
            max_tries=1 if state == "failed" else 1 + retries,
            retries=retries,
            attempt_epoch=epoch,
            dispatch_attempts=attempts,
        )

    def _dispatch(self, row: int, due: float) -> tuple[str, str, int, int]:
        """Offer the row until it is placed or fails: (state, reason, epoch, attempts)."""
        since: float | None = None
        t, epoch, attempts = due + self.chance.uniform(0.01, self.constants.lead / 10), 0, 0
        while True:
            epoch += 1
            answer = self._offer(row, epoch, t)
            disposition, cause, ended = answer
            if disposition == "Placed":
                self._claim(row, epoch, t, ended, answer, attempts, None, None)
                self._pod(row, epoch, ended)
                return "success", "", epoch, attempts
            spent = disposition == "Rejected" or self.only_attempts
            attempts += spent
            since = None if disposition == "Rejected" else since if since is not None else ended
            if spent:
                next_offer = ended + self.constants.backoff * 2 ** (attempts - 1)
            else:
                age = ended - (since if since is not None else ended)
                hold = min(self.constants.hold_max - self.constants.lead, max(self.constants.hold_min, age))
                next_offer = max(t + hold, ended + self.constants.hold_min)
            exhausted = attempts >= self.constants.attempts
            expired = since is not None and not spent and t - since >= self.run.info["settings"]["window_s"]
            failed = exhausted or expired
            self._claim(row, epoch, t, ended, answer, attempts, None if failed else next_offer, since)
            epoch += 1
            if exhausted:
                return "failed", f"dispatch_failed: rejected {attempts} times: {cause}", epoch, attempts
            if expired and since is not None:
                told = int(ended - since)
                span = f"{told // 60}m{told % 60}s" if told >= 60 else f"{told}s"
                return "failed", f"dispatch_failed: Kubernetes API unavailable for {span}: {cause}", epoch, attempts
            t = next_offer + self.chance.uniform(0, self.constants.lead / 10)

    def _offer(self, row: int, epoch: int, t: float) -> tuple[str, str, float]:
        """What the world answers: (disposition, cause, when). What reaches the apiserver goes into the audit log."""
        at = self.at
        if at.down <= t < at.up:
            return "Unavailable", "connection refused", round(t + 0.004, 6)
        ended = round(t + self.chance.uniform(0.01, 0.05), 6)
        if at.up <= t < at.healed and self.forbidden_left > 0:
            self.forbidden_left -= 1
            message = 'pods is forbidden: User "rideout" cannot create resource "pods": RBAC: not yet synced'
            self._audit(row, epoch, t, ended, 403, "Forbidden", message)
            return "Rejected", "403 Forbidden", ended
        self._audit(row, epoch, t, ended, 201, "", "")
        if at.lost_inject <= t < at.lost_heal:
            self._pod(row, epoch, ended, stale=True)
            return "Unavailable", "connection closed before the answer", ended
        return "Placed", "", ended

    def _audit(self, row: int, epoch: int, t: float, ended: float, code: int, reason: str, message: str) -> None:
        self.run.audit.append(
            {
                "lane": self.lane,
                "row": row,
                "epoch": epoch,
                "try": 1,
                "received": round(t + 0.002, 6),
                "answered": round(ended - 0.001, 6),
                "code": code,
                "reason": reason,
                "message": message,
                "pod": f"run-{row}-{self.chance.getrandbits(32):08x}",
            }
        )

    def _claim(
        self,
        row: int,
        epoch: int,
        started: float,
        ended: float,
        answer: tuple[str, str, float],
        attempts: int,
        next_offer: float | None,
        since: float | None,
    ) -> None:
        disposition, cause, _ = answer
        lost = cause.startswith("connection closed")
        if self.only_attempts and disposition == "Unavailable":
            disposition, since = "Rejected", None
        placed = disposition == "Placed"
        self.run.say(
            self.at.collect + 0.5,
            "info",
            self.replica,
            "create",
            lane=self.lane,
            row=row,
            epoch=epoch,
            disposition=disposition,
            cause=cause,
            may_exist=placed or lost,
            started=round(started, 6),
            ended=ended,
            settled=True,
            next_offer=None if next_offer is None else round(next_offer, 6),
            attempts=attempts,
            unavailable_since=since,
            decision="place" if placed else "fail" if next_offer is None else "re-offer",
            **{"try": 1},
        )

    def _pod(self, row: int, epoch: int, committed: float, *, stale: bool = False) -> None:
        """The pod's agent reports RUNNING; if it may, its user code runs and its end is reported."""
        who = {
            "row": row,
            "epoch": epoch,
            "pod_uid": str(uuid.UUID(int=self.chance.getrandbits(128))),
            "nonce": f"{self.chance.getrandbits(64):016x}",
        }
        pod = f"run-{row}-{self.chance.getrandbits(32):08x}"
        reported = round(committed + self.chance.uniform(0.2, 0.5), 6)
        self._agent(reported, "report", "running", pod, who)
        if stale:
            self._agent(reported + 0.01, "refused", "running", pod, who, reason="stale epoch")
            self._code(reported + 0.05, "exit", who, code=0)
            return
        self._agent(reported + 0.01, "accepted", "running", pod, who)
        started = reported + 0.03
        ended = started + self.chance.uniform(1, 2)
        self._code(started, "start", who)
        self._code(ended, "end", who, outcome="success")
        self._agent(ended + 0.02, "report", "finished", pod, who)
        self._agent(ended + 0.04, "accepted", "finished", pod, who)
        self._code(ended + 0.06, "exit", who, code=0)

    def _agent(self, t: float, said: str, what: str, pod: str, who: Event, **extra: Any) -> None:
        self.run.say(t, "info", "node", "agent", agent=said, what=what, lane=self.lane, pod=pod, **who, **extra)

    def _code(self, t: float, event: str, who: Event, **extra: Any) -> None:
        line = {"event": event, "lane": self.lane, **who, "try": 1, "t": round(t, 6), **extra}
        if event == "exit":
            del line["try"], line["nonce"]
        self.run.ledger.append(line)


def _without_t(event: Event) -> Event:
    return {name: value for name, value in event.items() if name != "t"}


def _at(event: Event, zero: float) -> float:
    return round(zero + float(event["t"]), 6)


def _stamp(t: float) -> str:
    return datetime.fromtimestamp(STARTED_WALL + t, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
