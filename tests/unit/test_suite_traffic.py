"""The load: what the seed draws, what user code signs, and that Locust submits exactly that."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from chaos import ledger
from chaos.history import History
from chaos.traffic import work
from chaos.traffic.launcher import LOCUSTFILE, REPOSITORY, WORK, Cue, LoadPlan, Target, command
from chaos.traffic.schedule import Burst, Schedule, Segment, Steady, draw

SEGMENTS = (
    Segment("first", (Burst(30, within_s=12.0), Steady(0.4, 100.0))),
    Segment("second", (Burst(16, within_s=2.0, after_s=3.0),)),
)


def test_a_seed_replays_its_schedule_and_another_draws_another(tmp_path: Path):
    drawn = draw(7, SEGMENTS, lead_s=1.0)
    drawn.write(tmp_path / "schedule.json")
    assert draw(7, SEGMENTS, lead_s=1.0) == drawn == Schedule.read(tmp_path / "schedule.json")
    assert draw(8, SEGMENTS, lead_s=1.0) != drawn


def test_a_schedule_keeps_its_counts_and_its_times_whatever_the_seed():
    for seed in range(50):
        drawn = draw(seed, SEGMENTS, lead_s=1.0)
        first = [entry.offset_s for entry in drawn.segments["first"]]
        assert first == sorted(first)
        assert len(first) == 70
        assert sum(offset < 12 for offset in first) >= 30
        assert all(3 <= entry.offset_s <= 5 for entry in drawn.segments["second"])
        keys = [entry.key for segment in drawn.segments.values() for entry in segment]
        assert len(keys) == len(set(keys))


def test_a_tenth_of_the_tasks_has_two_retries():
    for seed in range(50):
        retries = Counter(entry.retries for entry in draw(seed, SEGMENTS, lead_s=1.0).segments["first"])
        assert retries == {0: 63, 2: 7}


def test_R7_of_the_tasks_that_should_be_refused_a_tenth_has_retries_too():
    marked = Burst(12, within_s=1.0, labels={"denied": "yes"}, expect="rejected")
    for seed in range(50):
        drawn = draw(seed, (Segment("both", (marked, Steady(1.0, 40.0))),), lead_s=1.0).segments["both"]
        refused = [entry for entry in drawn if entry.expect == "rejected"]
        assert len(refused) == 12
        assert all(entry.labels == {"denied": "yes"} and entry.offset_s <= 1.0 for entry in refused)
        assert sum(entry.retries for entry in refused) == 2
        assert all(entry.labels == {} and entry.expect == "success" for entry in drawn if entry not in refused)


def environment(path: Path, **more: str) -> dict[str, str]:
    return {
        "RIDEOUT_LEDGER": str(path),
        "RIDEOUT_LANE": "tick",
        "RIDEOUT_ROW": "12",
        "RIDEOUT_TRY": "1",
        "RIDEOUT_EPOCH": "3",
        "RIDEOUT_POD_UID": "8f9e",
        "RIDEOUT_NONCE": 'n"1',
        "RIDEOUT_WORK_S": "0.05",
        **more,
    }


@pytest.mark.parametrize(("code", "outcome"), [(0, "success"), (75, "reschedule"), (1, "failure")])
def test_user_code_signs_start_and_end_in_the_ledger(tmp_path: Path, code: int, outcome: str):
    path = tmp_path / "ledger.jsonl"
    begun = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-I", "-S", WORK], env=environment(path, RIDEOUT_WORK_EXIT=str(code)), check=False
    )
    assert ended.returncode == code
    start, end = (json.loads(line) for line in path.read_text().splitlines())
    same = {"lane": "tick", "row": 12, "try": 1, "epoch": 3, "pod_uid": "8f9e", "nonce": 'n"1'}
    assert start == {"event": "start", "t_mono": start["t_mono"], **same}
    assert end == {"event": "end", "t_mono": end["t_mono"], "outcome": outcome, **same}
    assert begun < start["t_mono"] < end["t_mono"] - 0.04 < time.monotonic()
    assert len(ledger.read(path, begun).executions) == 1


def test_user_code_that_cannot_sign_does_not_run(tmp_path: Path):
    ended = subprocess.run(
        [sys.executable, "-I", "-S", WORK],
        env=environment(tmp_path / "no" / "ledger", RIDEOUT_WORK_S="60"),
        check=False,
        capture_output=True,
        timeout=20,
    )
    assert ended.returncode not in (0, work.RESCHEDULE)


class StandIn(ThreadingHTTPServer):
    """Takes submissions as a dispatcher would: a row for each key, and trouble where a test asks for it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.bodies: list[dict[str, object]] = []
        self.rows: dict[str, int] = {}
        self.say = 201
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answers(BaseHTTPRequestHandler):
    server: StandIn
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        row = self.server.rows.setdefault(body["key"], len(self.server.rows) + 1)
        tasks = [{"id": row, "key": body["tasks"][0]["key"], "state": "scheduled"}]
        answer = json.dumps({"id": row, "name": body["name"], "state": "running", "tasks": tasks}).encode()
        self.send_response(self.server.say)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


def load_plan(path: Path, lanes: dict[str, list[str]]) -> LoadPlan:
    plan = LoadPlan(
        run_key="test-7",
        started_mono=time.monotonic(),
        started_wall=time.time(),
        history=path / "history.jsonl",
        schedule=path / "schedule.json",
        cues=path / "cues.jsonl",
        summary=path / "summary.json",
        image="none",
        command=["work"],
        env={"RIDEOUT_LEDGER": "ledger"},
        lanes={lane: Target(lane, urls) for lane, urls in lanes.items()},
    )
    plan.write(path / "load.json")
    plan.cues.touch()
    return plan


def run_locust(path: Path, plan: LoadPlan, segment: str, seconds: float) -> dict[str, dict[str, dict[str, float]]]:
    """Locust as the launcher starts it, given one cue once it is there, and then its end."""
    with (path / "locust.log").open("wb") as log:
        locust = subprocess.Popen(
            command(LOCUSTFILE, users=2),
            env={**os.environ, "RIDEOUT_LOAD": str(path / "load.json")},
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        there = time.monotonic() + 60
        while "All users spawned" not in (path / "locust.log").read_text():
            assert time.monotonic() < there, (path / "locust.log").read_text()
            time.sleep(0.05)
        Cue(segment, time.monotonic() + 1.0).append_to(plan.cues)
        time.sleep(1.0 + seconds)  # this is the load itself, not a guess: the schedule is that long
        Cue(None, time.monotonic(), quit=True).append_to(plan.cues)
        assert locust.wait(60) == 0, (path / "locust.log").read_text()
    finally:
        locust.kill()
        locust.wait()
    return dict(json.loads(plan.summary.read_text()))


def test_locust_submits_the_schedule_once_to_each_lane_and_says_what_it_reached(tmp_path: Path):
    parts = (Burst(9, within_s=1.0), Burst(1, within_s=1.0, labels={"a": "b"}, expect="rejected"))
    drawn = draw(7, (Segment("burst", parts),), lead_s=0.5)
    drawn.write(tmp_path / "schedule.json")
    well, ill = StandIn(), StandIn()
    ill.say = 503
    plan = load_plan(tmp_path, {"tick": [well.url], "buffered": [ill.url, well.url]})

    reached = run_locust(tmp_path, plan, "burst", 2.0)

    assert len(well.rows) == 20, "each lane got each task once"
    assert reached["burst"]["tick"]["submitted"] == reached["burst"]["buffered"]["answered"] == 10
    events = History.read(plan.history)
    assert Counter(event["type"] for event in events) == {"invoke": 20, "ok": 20}
    rows = {event["key"]: event["row"] for event in events if event["type"] == "ok"}
    assert rows == well.rows, "the history knows each row's id"
    offsets = [entry.offset_s for entry in drawn.segments["burst"]]
    dues = sorted(event["due"] for event in events if event["type"] == "ok" and event["lane"] == "tick")
    assert [round(due - dues[0], 3) for due in dues] == pytest.approx([o - offsets[0] for o in offsets], abs=0.01)
    body = well.bodies[0]["tasks"][0]  # type: ignore[index]
    assert set(body) == {"key", "due_at", "retries", "retry_delay_s", "spec"}
    assert {"RIDEOUT_LEDGER", "RIDEOUT_LANE", "RIDEOUT_WORK_S"} == set(body["spec"]["env"])
    labelled = {body["key"] for body in well.bodies if body["tasks"][0]["spec"]["labels"] == {"a": "b"}}  # type: ignore[index]
    assert labelled == {event["key"] for event in events if event["expect"] == "rejected"}
    assert len(labelled) == 2, "one in each lane"


def test_a_submission_that_is_refused_is_a_fail_in_the_history(tmp_path: Path):
    draw(7, (Segment("burst", (Burst(2, within_s=0.2),)),), lead_s=0.5).write(tmp_path / "schedule.json")
    strict = StandIn()
    strict.say = 422
    plan = load_plan(tmp_path, {"tick": [strict.url]})
    run_locust(tmp_path, plan, "burst", 1.5)
    assert Counter(event["type"] for event in History.read(plan.history)) == {"invoke": 2, "fail": 2}
