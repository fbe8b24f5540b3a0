"""Agents over HTTP: tokens, what is a refusal and what never is (R11, R14, R19)."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dispatcher.api import Services
from dispatcher.api import services as api_services
from dispatcher.settings import Settings
from dispatcher.tokens import AttemptTokens
from tests.integration.http import Client, serving
from tests.integration.rows import ManualClock, add_rows, at
from tests.integration.rows import row as look
from tests.unit.agent_stage import Agent, start_agent

ME: dict[str, Any] = {"epoch": 3, "pod_uid": "uid", "nonce": "nonce"}
KEYS = ["new" * 12, "old" * 12]


@pytest.fixture
def services(engine: AsyncEngine) -> Services:
    settings = Settings(lease_s=60, heartbeat_s=10, lease_margin_s=12)
    return Services(settings, engine, ManualClock(), AttemptTokens(KEYS))


@pytest.fixture
async def client(services: Services) -> AsyncIterator[Client]:
    async with serving(services) as client:
        yield client


@pytest.fixture
async def row_id(engine: AsyncEngine) -> int:
    [row_id] = await add_rows(engine, state="queued", attempt_epoch=3, pod_name="pod", pod_uid="uid", queued_at=at(0))
    return row_id


async def report(
    client: Client, services: Services, row_id: int, what: str, *, epoch: int = 3, **body: Any
) -> tuple[int, Any]:
    token = services.tokens.sign(row_id, epoch)
    return await client.post(f"/v1/attempts/{row_id}/{what}", {**ME, "epoch": epoch, **body}, token=token)


async def test_an_attempt_runs_renews_and_ends(client, services, row_id, engine):
    lease = {"lease_s": 60, "heartbeat_s": 10, "margin_s": 12}
    assert await report(client, services, row_id, "running") == (200, {"decision": "run", **lease})
    assert await report(client, services, row_id, "heartbeat") == (200, {"decision": "renewed", **lease})
    assert await report(client, services, row_id, "finished", outcome="success", exit_code=0) == (
        200,
        {"decision": "recorded"},
    )
    assert (await look(engine, row_id)).state == "success"


async def test_R14_a_refusal_is_a_409_problem_that_says_should_terminate_and_why(client, services, row_id, engine):
    await report(client, services, row_id, "running")
    status, problem = await report(client, services, row_id, "running", nonce="second")
    assert (status, problem["should_terminate"], problem["reason"]) == (409, True, "other_process")
    status, problem = await report(client, services, row_id, "finished", epoch=2, outcome="lost")
    assert (status, problem["should_terminate"], problem["reason"]) == (409, True, "stale_epoch")
    assert (await look(engine, row_id)).state == "running"
    async with client.session.get(client.url + "/metrics") as answer:
        text = await answer.text()
    assert 'rideout_fence_refusals_total{reason="other_process",report="running"} 1.0' in text
    assert 'rideout_fence_refusals_total{reason="stale_epoch",report="finished"} 1.0' in text


@pytest.mark.parametrize("what", ["running", "heartbeat", "finished"])
async def test_R11_a_token_is_good_for_its_row_and_epoch_only(client, services, row_id, engine, what):
    body = {**ME, "outcome": "success"}
    path = f"/v1/attempts/{row_id}/{what}"
    foreign = AttemptTokens(["another key"]).sign(row_id, 3)
    good = services.tokens.sign(row_id, 3)
    for token, expected in [
        (None, 401),
        ("nonsense", 401),
        (foreign, 401),
        (good[:-1], 401),
        (services.tokens.sign(row_id + 1, 3), 403),
        (services.tokens.sign(row_id, 2), 403),
    ]:
        status, problem = await client.post(path, body, token=token)
        assert status == expected, token
        assert "should_terminate" not in problem, "only a row proves anything (R14)"
    assert (await look(engine, row_id)).state == "queued"


async def test_R26_a_token_of_the_key_before_is_accepted_during_a_rotation(client, row_id):
    old = AttemptTokens(KEYS[1:]).sign(row_id, 3)
    status, _ = await client.post(f"/v1/attempts/{row_id}/running", ME, token=old)
    assert status == 200


async def test_the_api_token_of_submitters_is_no_attempt_token(services, row_id):
    services.settings = Settings(api_token="s3cret")
    async with serving(services) as client:
        status, _ = await client.post(f"/v1/attempts/{row_id}/running", ME, token="s3cret")
        assert status == 401


async def test_R14_a_row_that_is_unknown_is_404_and_never_terminate(client, services):
    status, problem = await report(client, services, 2**40, "running")
    assert status == 404
    assert "should_terminate" not in problem


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("running", {"nonce": ""}),
        ("running", {"pod_uid": "x" * 201}),
        ("running", {"nonce": "a\x00b"}),
        ("finished", {}),
        ("finished", {"outcome": "gone"}),
        ("finished", {"outcome": "failure", "exit_code": 2**40}),
        ("finished", {"outcome": "reschedule", "reschedule_after_s": -1}),
        ("finished", {"outcome": "reschedule", "reschedule_after_s": 1e12}),
    ],
)
async def test_R14_a_report_that_cannot_be_read_is_422_and_never_terminate(client, services, row_id, what, body):
    status, problem = await report(client, services, row_id, what, **body)
    assert status == 422
    assert "should_terminate" not in problem


@pytest.mark.parametrize("what", ["running", "heartbeat", "finished"])
async def test_R14_a_database_that_is_away_is_503_and_never_terminate(client, services, what):
    services.engine = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/nowhere")
    status, problem = await report(client, services, 1, what, outcome="success")
    assert status == 503
    assert "should_terminate" not in problem
    await services.engine.dispose()


async def test_R14_a_database_that_hangs_is_503_before_the_agent_gives_up(
    client, services, row_id, engine, monkeypatch
):
    monkeypatch.setattr(api_services, "DATABASE_S", 0.3)
    async with engine.begin() as somebody:
        await somebody.execute(text("SELECT 1 FROM task_instances WHERE id = :id FOR UPDATE"), {"id": row_id})
        async with asyncio.timeout(20):
            status, problem = await report(client, services, row_id, "running")
        assert status == 503
        assert "should_terminate" not in problem
    assert (await report(client, services, row_id, "running"))[0] == 200


async def test_R14_before_the_database_was_reached_is_503(client, services, row_id):
    services.ready = False
    assert (await report(client, services, row_id, "running"))[0] == 503


async def test_R19_a_replica_that_does_not_lead_answers_agents(client, services, row_id):
    class Follows:
        term = None
        leads = False

    services.leadership = Follows()
    assert (await report(client, services, row_id, "running"))[0] == 200


async def test_a_newer_agent_may_say_more(client, services, row_id):
    assert (await report(client, services, row_id, "running", agent_version="9"))[0] == 200


async def agent_of(client: Client, services: Services, row_id: int, folder: Path, *command: str) -> Agent:
    identity = {"RIDEOUT_ROW": str(row_id), "RIDEOUT_TOKEN": services.tokens.sign(row_id, 3), "RIDEOUT_POD_UID": "uid"}
    return start_agent(folder, [client.url], command, **identity)


async def test_the_real_agent_and_the_real_api_understand_each_other(client, services, row_id, engine, tmp_path):
    agent = await agent_of(client, services, row_id, tmp_path, "sh", "-c", "exit 75")
    assert await asyncio.to_thread(agent.ends) == 75
    row = await look(engine, row_id)
    assert (row.state, row.exit_code, row.agent_nonce) == ("up_for_reschedule", 75, agent.events[0]["nonce"])
    stale = await agent_of(client, services, row_id, tmp_path, "touch", str(tmp_path / "ran"))
    assert await asyncio.to_thread(stale.ends) == 0
    assert stale.said("refused", what="running")
    assert not (tmp_path / "ran").exists()


async def test_R16_a_real_agent_that_is_evicted_gives_its_row_back(client, services, row_id, engine, tmp_path):
    agent = await agent_of(client, services, row_id, tmp_path, "sleep", "600")
    await asyncio.to_thread(agent.wait_said, "user-start")
    agent.send(signal.SIGTERM)
    assert await asyncio.to_thread(agent.ends) == 143
    row = await look(engine, row_id)
    assert (row.state, row.attempt_epoch, row.infra_replaces) == ("scheduled", 4, 1)
