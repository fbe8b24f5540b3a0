"""Locust's side of the load: one user a lane submits the schedule's tasks over HTTP when the run gives the cue.

Started by `chaos.traffic.launcher`, which hands over one JSON file (environment RIDEOUT_LOAD, see `LoadPlan`). Cues
arrive as lines of a file, so that a run can be read afterwards: {"segment": name or null, "at": CLOCK_MONOTONIC
seconds} starts a segment and ends the one before it; {"quit": true} ends Locust once every submission is answered.

Every submission is an operation of the history (`submit`: invoke, then ok, fail or info). It carries a key of its
own, so it is repeated to the lane's next replica until one answers; only where none did within `GIVE_UP_S` is its
outcome unknown (info).
"""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gevent
from locust import FastHttpUser, constant, events, task
from locust.env import Environment

from chaos.history import EventType, History
from chaos.traffic.launcher import Cue, LoadPlan
from chaos.traffic.schedule import Entry, Schedule

GIVE_UP_S = 30.0
"""Longer than a replica's restart or a change of leader, shorter than a drain."""

plan = LoadPlan.read(Path(os.environ["RIDEOUT_LOAD"]))
schedule = Schedule.read(plan.schedule)
history = History(plan.history, plan.started_mono)
lanes_to_take = list(plan.lanes)


class Board:
    """What is shown to all users: the cue that holds now, and what was done under each."""

    def __init__(self) -> None:
        self.cue: Cue | None = None
        self.quitting = False
        self.pending = 0
        self.done: list[dict[str, Any]] = []

    def follow(self, environment: Environment) -> None:
        """Read the file of cues for ever; a line is taken once it is whole."""
        with plan.cues.open(encoding="utf-8") as lines:
            rest = ""
            while not self.quitting:
                rest += lines.read()
                while "\n" in rest:
                    line, rest = rest.split("\n", 1)
                    self.take(Cue.parse(line))
                gevent.sleep(0.02)
        deadline = time.monotonic() + GIVE_UP_S + 5
        while self.pending and time.monotonic() < deadline:
            gevent.sleep(0.02)
        if environment.runner is not None:
            environment.runner.quit()

    def take(self, cue: Cue) -> None:
        self.cue = cue
        self.quitting = cue.quit


board = Board()


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def start_following(environment: Environment, **_: object) -> None:
    gevent.spawn(board.follow, environment)


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def write_summary(**_: object) -> None:
    """Say what was reached: by segment and lane, how many were submitted, how fast, and the latest submission."""
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for done in board.done:
        lane = summary.setdefault(done["segment"], {}).setdefault(
            done["lane"], {"submitted": 0, "answered": 0, "latest_s": 0.0, "first": done["t"], "last": done["t"]}
        )
        lane["submitted"] += 1
        lane["answered"] += done["answered"]
        lane["latest_s"] = max(lane["latest_s"], done["late_s"])
        lane["first"], lane["last"] = min(lane["first"], done["t"]), max(lane["last"], done["t"])
    for segment in summary.values():
        for lane in segment.values():
            span = lane.pop("last") - lane.pop("first")
            lane["rate"] = round((lane["submitted"] - 1) / span, 3) if span else 0.0
    plan.summary.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


class LaneUser(FastHttpUser):  # type: ignore[misc]
    """Submits one lane's share. Each task is its own run, so that no submission waits for another."""

    host = "http://localhost"  # every request names its replica in full
    wait_time = constant(0)
    connection_timeout = 5.0
    network_timeout = 5.0
    max_retries = 0

    def on_start(self) -> None:
        self.lane = lanes_to_take.pop()
        self.target = plan.lanes[self.lane]
        self.cue: Cue | None = None
        self.entries: list[Entry] = []

    @task  # type: ignore[untyped-decorator]
    def submit_the_next(self) -> None:
        cue = board.cue
        if cue is None or cue.quit or cue.segment is None:
            gevent.sleep(0.02)
            return
        if cue is not self.cue:
            self.cue, self.entries = cue, list(schedule.segments[cue.segment])
        if not self.entries:
            gevent.sleep(0.02)
            return
        submit_at = cue.at + self.entries[0].offset_s - schedule.lead_s
        if (wait := submit_at - time.monotonic()) > 0:
            gevent.sleep(min(wait, 0.02))
            return
        board.pending += 1
        gevent.spawn(self.submit, cue, self.entries.pop(0))

    def submit(self, cue: Cue, entry: Entry) -> None:
        try:
            self.submit_until_answered(cue, entry)
        finally:
            board.pending -= 1

    def submit_until_answered(self, cue: Cue, entry: Entry) -> None:
        due = max(cue.at + entry.offset_s, time.monotonic()) - plan.started_mono
        key = f"{plan.run_key}-{self.lane}-{entry.key}"
        told: dict[str, Any] = {"lane": self.lane, "key": key, "due": round(due, 6), "expect": entry.expect}
        history.write("invoke", "load", "submit", row=None, segment=cue.segment, **told)
        asked = time.monotonic()
        verdict, row, detail = self.post(body_of(key, due, entry, self.target), asked + GIVE_UP_S)
        if detail:
            told["detail"] = detail
        at = history.write(verdict, "load", "submit", row=row, **told)
        board.done.append(
            {
                "segment": cue.segment,
                "lane": self.lane,
                "t": at,
                "answered": verdict == "ok",
                "late_s": round(max(0.0, asked - (cue.at + entry.offset_s - schedule.lead_s)), 3),
            }
        )

    def post(self, body: bytes, deadline: float) -> tuple[EventType, int | None, str]:
        """Post to one replica after the other until one answers: (ok|fail|info, row id, what went wrong)."""
        urls, attempt, detail = self.target.urls, 0, ""
        headers = {"content-type": "application/json"}
        if self.target.token:
            headers["authorization"] = f"Bearer {self.target.token}"
        while time.monotonic() < deadline:
            url = urls[attempt % len(urls)]
            with self.client.post(
                f"{url}/v1/runs", data=body, headers=headers, name=f"submit {self.lane}", catch_response=True
            ) as answer:
                if answer.status_code in (200, 201):
                    return "ok", answer.json()["tasks"][0]["id"], ""
                detail = f"{url}: {answer.status_code} {(answer.text or str(answer.error or ''))[:200]}"
                if 400 <= answer.status_code < 500 and answer.status_code not in (401, 404, 408, 429):
                    return "fail", None, detail
            attempt += 1
            gevent.sleep(min(2.0, 0.1 * 2**attempt))
        return "info", None, detail


def body_of(key: str, due: float, entry: Entry, target: Any) -> bytes:
    """The submission of one task; `due` is on the run clock, the dispatcher is told the wall time."""
    due_at = datetime.fromtimestamp(plan.started_wall + due, UTC).isoformat()
    spec = {
        "image": plan.image,
        "command": plan.command,
        "env": {**plan.env, "RIDEOUT_LANE": target.lane, "RIDEOUT_WORK_S": str(entry.work_s)},
        "labels": entry.labels,
    }
    one = {"key": key, "due_at": due_at, "retries": entry.retries, "retry_delay_s": 1, "spec": spec}
    return json.dumps({"key": key, "name": key[-40:], "labels": {}, "tasks": [one]}).encode()
