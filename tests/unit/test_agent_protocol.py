"""What the agent asks, what it believes, and what it does not (R11, R12, R14, R16)."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dispatcher import agent as module
from tests.faults.certificates import server_context
from tests.unit.agent_stage import (
    LEASE,
    PROBLEM,
    RECORDED,
    REFUSAL,
    REFUSED,
    RUN,
    Agent,
    Asked,
    Dispatcher,
    Play,
    http,
    start_agent,
    wait_for,
)

Stage = Callable[..., Dispatcher]
Start = Callable[..., Agent]
HTML = b"<html><body>502 Bad Gateway</body></html>"


@pytest.fixture
def stage() -> Iterator[Stage]:
    up: list[Dispatcher] = []

    def begin(*running: Play, finished: list[Play] | None = None) -> Dispatcher:
        up.append(Dispatcher({"running": list(running) or [RUN], "finished": finished or [RECORDED]}))
        return up[-1]

    yield begin
    for dispatcher in up:
        dispatcher.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Agent] = []

    def begin(urls: Any, *command: str, **options: Any) -> Agent:
        urls = [urls.url] if isinstance(urls, Dispatcher) else urls
        folder = tmp_path / f"agent-{len(started)}"
        folder.mkdir()
        started.append(start_agent(folder, urls, command or ["touch", str(tmp_path / "ran")], **options))
        return started[-1]

    yield begin
    for agent in started:
        agent.process.kill()
        agent.process.wait()


def close(connection: socket.socket, _: Asked) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def test_R11_the_identity_is_reported_and_the_end_after_it(stage, start, tmp_path):
    dispatcher = stage()
    agent = start(dispatcher)
    assert agent.ends() == 0
    running, finished = dispatcher.asked
    assert running.path == "/v1/attempts/7/running"
    assert running.token == finished.token == "secret-token"
    nonce = running.body["nonce"]
    assert running.body == {"epoch": 3, "pod_uid": "uid-7", "nonce": nonce}
    ended = {"outcome": "success", "exit_code": 0, "reschedule_after_s": None}
    assert finished.body == {**running.body, **ended}
    assert (tmp_path / "ran").exists()
    told = [(e["agent"], e.get("what")) for e in agent.events]
    assert told == [
        ("report", "running"), ("accepted", "running"), ("user-start", None), ("user-end", None),
        ("report", "finished"), ("accepted", "finished"),
    ]  # fmt: skip
    assert all((e["row"], e["epoch"], e["pod_uid"], e["nonce"]) == (7, 3, "uid-7", nonce) for e in agent.events)


def test_R11_every_process_draws_a_nonce_of_its_own(stage, start):
    dispatcher = stage()
    for _ in range(2):
        assert start(dispatcher).ends() == 0
    first, second = (one.body["nonce"] for one in dispatcher.reports("running"))
    assert first != second
    assert len(first) == 32


def test_R11_user_code_does_not_start_before_it_was_told_to_run(stage, start, tmp_path):
    asked: list[socket.socket] = []

    def hold(connection: socket.socket, _: Asked) -> None:
        asked.append(connection)
        wait_for("the test to let it run", lambda: not asked)
        connection.sendall(RUN)

    agent = start(stage(hold))
    wait_for("the agent to ask", lambda: asked)
    assert not (tmp_path / "ran").exists()
    assert not agent.said("user-start")
    asked.clear()
    assert agent.ends() == 0
    assert (tmp_path / "ran").exists()


def test_R11_a_refused_agent_exits_0_without_starting_user_code(stage, start, tmp_path):
    dispatcher = stage(REFUSED)
    agent = start(dispatcher)
    assert agent.ends() == 0
    assert not (tmp_path / "ran").exists()
    assert [one.what for one in dispatcher.asked] == ["running"]
    assert agent.said("refused", what="running", reason="stale_epoch")


NO_REFUSALS: list[tuple[str, Play]] = [
    ("401", http(401, {**REFUSAL, "status": 401}, PROBLEM)),
    ("403", http(403, {**REFUSAL, "status": 403}, PROBLEM)),
    ("404", http(404, {**REFUSAL, "status": 404}, PROBLEM)),
    ("500", http(500, {**REFUSAL, "status": 500}, PROBLEM)),
    ("503", http(503, {**REFUSAL, "status": 503}, PROBLEM)),
    ("200 with a refusal's body", http(200, REFUSAL, PROBLEM)),
    ("409 that is no problem document", http(409, REFUSAL)),
    ("409 that does not say it", http(409, {"title": "Conflict"}, PROBLEM)),
    ("409 that says false", http(409, {"should_terminate": False}, PROBLEM)),
    ("409 that says it in words", http(409, {"should_terminate": "true"}, PROBLEM)),
    ("409 with a list", http(409, [REFUSAL], PROBLEM)),
    ("409 cut short", http(409, REFUSAL, PROBLEM)[:-9]),
    ("409 of HTML", http(409, HTML, "text/html")),
    ("502 of HTML", http(502, HTML, "text/html")),
    ("200 of HTML", http(200, HTML, "text/html")),
    ("200 that says nothing", http(200, {})),
    ("200 that says something else", http(200, {"decision": "recorded"})),
    ("200 without a lease", http(200, {"decision": "run"})),
    ("200 with a lease of no time", http(200, {"decision": "run", "lease_s": 0})),
    ("201 with an acceptance", http(201, {"decision": "run", **LEASE})),
    ("204", http(204)),
    ("no HTTP", b"SSH-2.0-OpenSSH\r\n"),
    ("an endless answer", http(200, b"x" * 200_000)),
    ("a connection that closes", close),
]


def test_R14_what_is_no_answer_is_asked_again(stage, start):
    """All at once, since each agent waits for its backoff."""
    cases = [(name, dispatcher, start(dispatcher)) for name, play in NO_REFUSALS for dispatcher in [stage(play, RUN)]]
    for name, dispatcher, agent in cases:
        assert agent.ends() == 0, name
        first, second = dispatcher.reports("running")
        assert first.body == second.body, f"{name}: the same process, so the same nonce (R12)"
        assert len(agent.said("retry", what="running")) == 1, name
        assert len(agent.said("report", what="running")) == 1, f"{name}: once, before the first send"
        assert agent.said("user-start"), name


def test_R14_a_redirect_is_not_followed(stage, start):
    elsewhere = stage(REFUSED)
    target = f"{elsewhere.url}/v1/attempts/7/running"
    cases = [stage(http(status, b"", Location=target), RUN) for status in (301, 302, 307, 308)]
    for agent in [start(dispatcher) for dispatcher in cases]:
        assert agent.ends() == 0
    assert elsewhere.asked == []
    assert [len(dispatcher.reports("running")) for dispatcher in cases] == [2, 2, 2, 2]


def test_R14_every_replica_is_asked_in_turn(stage, start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gone = f"http://127.0.0.1:{taken.getsockname()[1]}"
    broken, good = stage(http(500, HTML, "text/html")), stage()
    for _ in range(3):  # each agent begins with another one
        agent = start([gone, broken.url, good.url])
        assert agent.ends() == 0
        assert len(agent.said("retry")) <= 2
    assert len(good.reports("running")) == 3


def test_R14_over_https_a_replica_is_asked_only_if_its_certificate_is_trusted(start, tls_files, tmp_path):
    script: dict[str, list[Play]] = {"running": [RUN], "finished": [RECORDED]}
    trusted = Dispatcher(script, tls=server_context(tls_files.server))
    stranger = Dispatcher({"running": [REFUSED]}, tls=server_context(tls_files.stranger))
    for _ in range(2):
        agent = start([stranger.url, trusted.url], SSL_CERT_FILE=str(tls_files.ca))
        assert agent.ends() == 0
        assert agent.said("user-start")
        assert all("CERTIFICATE_VERIFY_FAILED" in retry["error"] for retry in agent.said("retry"))
    assert stranger.asked == []
    trusted.close()
    stranger.close()


def test_R14_a_server_that_drips_does_not_hold_an_agent_past_5_s(stage, start):
    """Each byte comes within any socket's timeout; the deadline is on the whole request."""

    def drip(connection: socket.socket, _: Asked) -> None:
        for byte in RUN:
            connection.sendall(bytes([byte]))
            time.sleep(0.5)

    dispatcher = stage(drip, RUN)
    agent = start(dispatcher)
    assert agent.ends() == 0
    first, second = dispatcher.reports("running")
    assert 4.9 < second.at - first.at < 5.0 + 1.0 + 3.0, "deadline + the first backoff + a slow machine"
    assert "within 5 s" in agent.said("retry")[0]["error"]


def test_R14_an_agent_that_nobody_answers_gives_up_after_its_patience(stage, start, tmp_path):
    agent = start(stage(http(503, b"")), RIDEOUT_AGENT_PATIENCE_S="0.7")
    assert agent.ends() == module.UNANSWERED
    assert not (tmp_path / "ran").exists()


def test_R14_the_patience_outlasts_the_window_and_the_longest_outage_we_promise_to_ride_out():
    assert module.PATIENCE_S > 2 * 900 - 1
    assert module.REQUEST_S == 5


def test_R14_rounds_are_at_most_10_s_apart_and_jittered(monkeypatch):
    class Nobody:
        row, nonce, urls = 1, "n", ["http://a", "http://b"]

        def identity(self) -> dict[str, Any]:
            return {"row": 1}

    monkeypatch.setattr(module, "event", lambda *_, **__: None)
    for draw in (0.0, 0.999999):
        monkeypatch.setattr(module, "jitter", lambda draw=draw: draw)
        report = module.Report(Nobody(), None, "heartbeat")  # type: ignore[arg-type]
        pauses = []
        for _ in range(40):
            before = module.clock()
            report._ask_again("")
            pauses.append(max(0.0, report.wake_at - before))
        assert max(pauses) <= 10.01
        assert pauses[0] < 0.01, "the second replica is asked at once"
        assert (max(pauses) > 9) == (draw > 0.5)


def test_R12_an_answer_that_was_lost_is_asked_for_again_by_the_same_process(stage, start, tmp_path):
    dispatcher = stage(close, close, RUN)
    assert start(dispatcher).ends() == 0
    assert len({str(one.body) for one in dispatcher.reports("running")}) == 1
    assert len(dispatcher.reports("running")) == 3
    assert (tmp_path / "ran").exists()


def test_R16_an_end_is_reported_until_it_is_answered(stage, start):
    plays: list[Play] = [close, http(404, {}), http(409, {}), RECORDED]
    dispatcher = stage(finished=plays)
    assert start(dispatcher, "sh", "-c", "exit 3").ends() == 3
    ends = dispatcher.reports("finished")
    assert len(ends) == 4
    assert {(one.body["outcome"], one.body["exit_code"]) for one in ends} == {("failure", 3)}


def test_R16_a_refusal_of_an_end_is_an_answer(stage, start):
    dispatcher = stage(finished=[REFUSED])
    agent = start(dispatcher, "sh", "-c", "exit 3")
    assert agent.ends() == 0, "a refused agent exits 0: its pod must not look like a failure"
    assert agent.said("refused", what="finished")
    assert len(dispatcher.reports("finished")) == 1


@pytest.mark.parametrize(
    ("command", "outcome", "code"),
    [
        (["true"], "success", 0),
        (["sh", "-c", "exit 75"], "reschedule", 75),
        (["sh", "-c", "exit 1"], "failure", 1),
        (["sh", "-c", "kill -KILL $$"], "failure", 137),
        (["/no/such/program"], "failure", 127),
        (["/etc/passwd"], "failure", 126),
    ],
)
def test_R16_how_user_code_ended_is_how_the_agent_ends(stage, start, command, outcome, code):
    dispatcher = stage()
    assert start(dispatcher, *command).ends() == code
    [finished] = dispatcher.reports("finished")
    assert (finished.body["outcome"], finished.body["exit_code"]) == (outcome, code)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"drop": ["RIDEOUT_TOKEN"]}, "RIDEOUT_TOKEN"),
        ({"drop": ["RIDEOUT_DISPATCHERS"]}, "RIDEOUT_DISPATCHERS"),
        ({"RIDEOUT_DISPATCHERS": "ftp://x"}, "RIDEOUT_DISPATCHERS"),
        ({"RIDEOUT_ROW": "x"}, "RIDEOUT_ROW"),
        ({"RIDEOUT_AGENT_PATIENCE_S": "long"}, "RIDEOUT_AGENT_PATIENCE_S"),
    ],
)
def test_bad_usage_is_one_line_and_no_user_code(start, tmp_path, change, names):
    agent = start(["http://127.0.0.1:1"], **change)
    assert agent.ends() == module.USAGE
    [line] = agent.stderr.read_text().splitlines()
    assert names in line
    assert "secret-token" not in line
    assert not (tmp_path / "ran").exists()
