"""What operators see over HTTP: runs, task lists, the outage, metrics, readiness; and who may look."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dispatcher.api import Services
from dispatcher.outage import ApiHealth
from dispatcher.rules import Disposition
from dispatcher.settings import Settings
from dispatcher.tokens import AttemptTokens
from tests.integration.http import Client, serving
from tests.integration.rows import NOW, ManualClock, add_rows, at, set_row

TASK: dict[str, Any] = {"key": "t", "spec": {"image": "busybox", "command": ["true"]}}


def run(**changes: Any) -> dict[str, Any]:
    return {"key": "nightly-2026-01-05", "name": "nightly", "tasks": [TASK], **changes}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def services(engine: AsyncEngine, clock: ManualClock) -> Services:
    settings = Settings(namespace="tasks-default", window_s=900)
    return Services(settings, engine, clock, AttemptTokens(["k" * 32]))


@pytest.fixture
async def client(services: Services) -> AsyncIterator[Client]:
    async with serving(services) as client:
        yield client


async def test_a_run_is_shown_with_its_rows(client):
    _, submitted = await client.post("/v1/runs", run(labels={"team": "data"}))
    status, shown = await client.get(f"/v1/runs/{submitted['id']}")
    assert status == 200
    assert (shown["key"], shown["labels"], shown["state"]) == ("nightly-2026-01-05", {"team": "data"}, "running")
    assert shown["tasks"][0]["key"] == "t"


async def test_tasks_are_listed_page_by_page_and_filtered(client, engine):
    held = await add_rows(engine, 3, reason="held: Kubernetes API unavailable: connection refused")
    failed = await add_rows(engine, 2, state="failed", ended_at=NOW, reason="dispatch_failed: 100% refused")
    await set_row(engine, held[0], reason="held: moved to the table's end")
    status, first = await client.get("/v1/tasks?limit=2")
    assert status == 200
    assert [row["id"] for row in first["tasks"]] == held[:2]
    seen, cursor = [], None
    while True:
        _, page = await client.get("/v1/tasks?limit=2" + (f"&cursor={cursor}" if cursor else ""))
        seen += [row["id"] for row in page["tasks"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert seen == held + failed
    for query, expected in [
        ("state=failed", failed),
        ("reason=held", held),
        ("reason=dispatch_failed:+100%25+r", failed),
        ("reason=%25", []),  # no wildcard of the caller's
        ("state=failed&reason=held", []),
    ]:
        _, page = await client.get(f"/v1/tasks?{query}")
        assert [row["id"] for row in page["tasks"]] == expected, query


async def test_a_listed_task_has_the_members_that_the_contract_names(client, engine):
    await add_rows(engine, dispatch_unavailable_since=at(-5))
    _, page = await client.get("/v1/tasks")
    assert set(page["tasks"][0]) == {
        "id", "run_id", "key", "state", "due_at", "next_offer_at", "try_number", "max_tries", "retries",
        "attempt_epoch", "dispatch_attempts", "dispatch_unavailable_since", "reason", "pod_name", "pod_uid",
        "started_at", "ended_at",
    }  # fmt: skip
    assert page["tasks"][0]["dispatch_unavailable_since"] == "2026-01-05T11:59:55+00:00"


async def test_no_outage_without_holding_rows(client, engine):
    await add_rows(engine)
    status, told = await client.get("/v1/outage")
    assert status == 200
    assert (told["down"], told["since"], told["rows_holding"], told["first_to_fail"]) == (False, None, 0, None)


async def test_the_outage_is_told_from_the_rows(client, engine):
    reason = "held: Kubernetes API unavailable: 503 ServiceUnavailable"
    [first] = await add_rows(engine, dispatch_unavailable_since=at(-100), reason=reason)
    await add_rows(engine, dispatch_unavailable_since=at(-50), reason=reason)
    _, told = await client.get("/v1/outage")
    assert (told["down"], told["rows_holding"], told["cause"]) == (True, 2, "503 ServiceUnavailable")
    assert told["since"] == at(-100).isoformat()
    assert (told["first_to_fail"]["id"], told["first_to_fail"]["fails_from"]) == (first, at(800).isoformat())


async def test_one_poison_row_is_no_outage(client, engine):
    await add_rows(engine, dispatch_unavailable_since=at(-100))
    _, told = await client.get("/v1/outage")
    assert (told["down"], told["rows_holding"]) == (False, 1)


async def test_poison_rows_beside_placed_ones_are_no_outage(client, engine):
    await add_rows(engine, 2, dispatch_unavailable_since=at(-100))
    await add_rows(engine, state="queued", queued_at=at(-20), pod_name="p", pod_uid="u")
    _, told = await client.get("/v1/outage")
    assert (told["down"], told["rows_holding"]) == (False, 2)


async def test_a_pod_placed_before_the_newest_row_began_to_hold_is_no_sign_of_life(client, engine):
    await add_rows(engine, dispatch_unavailable_since=at(-100))
    await add_rows(engine, dispatch_unavailable_since=at(-50))
    await add_rows(engine, state="queued", queued_at=at(-70), pod_name="p", pod_uid="u")
    _, told = await client.get("/v1/outage")
    assert told["down"] is True


async def test_a_row_that_the_buffered_path_marked_queued_is_no_sign_of_life(client, engine):
    await add_rows(engine, 2, dispatch_unavailable_since=at(-100))
    await add_rows(engine, state="queued", queued_at=at(-20), claimed_by="r", claim_until=at(9))
    _, told = await client.get("/v1/outage")
    assert told["down"] is True


class Leads:
    term: int | None = 7
    leads = True


async def test_the_leader_tells_the_outage_from_its_own_creates(client, engine, services):
    services.leadership = Leads()
    services.health = ApiHealth()
    for row in (1, 2):
        services.health.note(row, Disposition.UNAVAILABLE, "connection refused", at(-30))
    _, told = await client.get("/v1/outage")
    assert (told["down"], told["since"], told["cause"]) == (True, at(-30).isoformat(), "connection refused")


async def figures(client: Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    async with client.session.get(client.url + "/metrics") as answer:
        assert answer.status == 200
        text = await answer.text()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics_show_the_rows_the_outage_and_the_leader(client, engine, services, clock):
    services.leadership = Leads()
    await add_rows(engine, 2, dispatch_unavailable_since=at(-100), due_at=at(-130), scheduled_at=at(-200))
    await add_rows(engine, due_at=at(3600))
    await add_rows(engine, due_at=at(-5000), scheduled_at=at(-10))  # a retry: due since it was scheduled again
    found = await figures(client)
    assert found["rideout_task_instances", (("state", "scheduled"),)] == 4
    assert found["rideout_task_instances", (("state", "running"),)] == 0
    assert found["rideout_rows_holding", ()] == 2
    assert found["rideout_oldest_due_age_seconds", ()] == 130
    assert found["rideout_oldest_unavailable_age_seconds", ()] == 100
    assert found["rideout_window_left_seconds", ()] == 800
    assert found["rideout_leader_term", ()] == 7
    assert found["rideout_database_up", ()] == 1


async def test_readyz_is_about_the_database_and_healthz_about_the_process(client, services, clock):
    assert (await client.get("/healthz"))[0] == 200
    assert (await client.get("/readyz"))[0] == 200
    services.engine = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/nowhere")
    assert (await client.get("/healthz"))[0] == 200
    status, _ = await client.get("/readyz")
    assert status == 503
    assert (await client.post("/v1/runs", run()))[0] == 503
    found = await figures(client)
    assert found["rideout_database_up", ()] == 0
    await services.engine.dispose()


async def test_readyz_waits_for_the_migrations(empty_database_url, services):
    services.engine = create_async_engine(empty_database_url)
    async with serving(services) as client:
        assert (await client.get("/readyz"))[0] == 503
    await services.engine.dispose()


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/outage", "/v1/runs/1"])
async def test_with_a_token_set_submitters_and_operators_must_show_it(services, path):
    services.settings = Settings(api_token=SecretStr("s3cret"))
    async with serving(services) as client:
        assert (await client.get(path))[0] == 401
        assert (await client.get(path, token="another"))[0] == 401
        assert (await client.get(path, headers={"Authorization": "Basic s3cret"}))[0] == 401
        assert (await client.get(path, token="s3cret"))[0] in (200, 404)
        assert (await client.get("/healthz"))[0] == 200


async def test_with_a_token_set_a_submission_without_it_is_not_even_validated(services, engine):
    services.settings = Settings(api_token=SecretStr("s3cret"))
    async with serving(services) as client:
        assert (await client.post("/v1/runs", {"nonsense": 1}))[0] == 401
        assert (await client.post("/v1/runs", run()))[0] == 401
        assert (await client.post("/v1/runs", run(), token="s3cret"))[0] == 201
