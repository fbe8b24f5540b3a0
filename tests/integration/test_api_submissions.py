"""Submissions over HTTP: stored as meant, once, whole or not at all; every error a problem document."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dispatcher.api import MAX_BODY, Services
from dispatcher.schema import runs, task_instances
from dispatcher.settings import Settings
from dispatcher.tokens import AttemptTokens
from tests.integration.conftest import Databases
from tests.integration.http import PROBLEM, Client, serving
from tests.integration.rows import NOW, ManualClock, at
from tests.integration.rows import row as look

TASK: dict[str, Any] = {"key": "t", "spec": {"image": "busybox", "command": ["true"]}}


def run(**changes: Any) -> dict[str, Any]:
    return {"key": "nightly-2026-01-05", "name": "nightly", "tasks": [TASK], **changes}


def task(**changes: Any) -> dict[str, Any]:
    return {**TASK, **changes}


def spec(**changes: Any) -> list[dict[str, Any]]:
    return [task(spec={**TASK["spec"], **changes})]


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


@pytest.fixture(scope="module")
async def untouched_engine(databases: Databases, migrated_template: str) -> AsyncIterator[AsyncEngine]:
    """One database for all tests that show that nothing is stored."""
    url = databases.create(migrated_template)
    engine = create_async_engine(url)
    yield engine
    await engine.dispose()
    databases.drop(url)


@pytest.fixture(scope="module")
async def untouched(untouched_engine: AsyncEngine) -> AsyncIterator[Client]:
    async with serving(Services(Settings(), untouched_engine, ManualClock(), AttemptTokens(["k" * 32]))) as client:
        yield client


async def stored(engine: AsyncEngine) -> tuple[int, int]:
    async with engine.connect() as connection:
        return (
            (await connection.execute(select(func.count()).select_from(runs))).scalar_one(),
            (await connection.execute(select(func.count()).select_from(task_instances))).scalar_one(),
        )


async def test_a_submission_is_stored_as_it_was_meant(client, engine):
    due = "2026-01-05T13:30:00+01:00"
    body = run(
        labels={"team": "data"},
        tasks=[
            task(key="a", due_at=due, retries=2, retry_delay_s=1.5),
            task(
                key="b", spec={"command": ["sh", "-c"], "args": ["x"], "env": {"A": "1"}, "namespace": "other",
                "labels": {"app": "b"}, "resources": {"requests": {"cpu": "100m"}}, "timeout_s": 60},
            ),
        ],
    )  # fmt: skip
    status, told = await client.post("/v1/runs", body)
    assert status == 201
    assert (told["name"], told["state"]) == ("nightly", "running")
    assert [(one["key"], one["state"]) for one in told["tasks"]] == [("a", "scheduled"), ("b", "scheduled")]
    a, b = [await look(engine, one["id"]) for one in told["tasks"]]
    assert (a.due_at, a.next_offer_at) == (at(1800), at(1800))
    assert (a.try_number, a.retries, a.max_tries, a.retry_delay) == (1, 2, 3, 1.5)  # R21
    assert (a.attempt_epoch, a.dispatch_attempts, a.dispatch_unavailable_since) == (0, 0, None)
    assert (a.namespace, b.namespace) == ("tasks-default", "other")
    assert (b.due_at, b.scheduled_at, b.max_tries) == (NOW, NOW, 1)
    assert b.spec == {
        "command": ["sh", "-c"], "args": ["x"], "env": {"A": "1"}, "labels": {"app": "b"},
        "resources": {"requests": {"cpu": "100m"}}, "timeout_s": 60,
    }  # fmt: skip


async def test_the_same_key_and_body_again_is_the_same_run(client, engine):
    _, first = await client.post("/v1/runs", run())
    # written down otherwise, the same content
    again = json.dumps(
        {"tasks": [{**TASK, "retries": 0}], "labels": {}, "name": "nightly", "key": "nightly-2026-01-05"}
    )
    assert await client.call("POST", "/v1/runs", data=again, headers={"Content-Type": "application/json"}) == (
        200,
        first,
    )
    assert await stored(engine) == (1, 1)


async def test_the_same_key_with_another_body_is_a_conflict(client, engine):
    _, first = await client.post("/v1/runs", run())
    status, problem = await client.post("/v1/runs", run(tasks=[task(retries=1)]))
    assert (status, problem["run_id"]) == (409, first["id"])
    assert "should_terminate" not in problem
    assert await stored(engine) == (1, 1)


async def test_one_key_submitted_at_once_makes_one_run(client, engine):
    told = await asyncio.gather(*(client.post("/v1/runs", run()) for _ in range(8)))
    assert sorted(status for status, _ in told) == [200] * 7 + [201]
    assert len({document["id"] for _, document in told}) == 1
    assert await stored(engine) == (1, 1)


GOOD = task(key="good")
MALFORMED: list[tuple[str, Any]] = [
    ("no object", []),
    ("no key", {"name": "n", "tasks": [TASK]}),
    ("an empty key", run(key="")),
    ("a long key", run(key="k" * 251)),
    ("a control character in a key", run(key="a\nb")),
    ("a NUL in a name", run(name="a\x00b")),
    ("a member we do not know", run(priority=1)),
    ("no tasks", run(tasks=[])),
    ("too many tasks", run(tasks=[task(key=str(n)) for n in range(1001)])),
    ("a task key twice", run(tasks=[GOOD, GOOD])),
    ("no spec", run(tasks=[GOOD, {"key": "t"}])),
    ("no command", run(tasks=[GOOD, *spec(command=[])])),
    ("an empty program", run(tasks=[GOOD, *spec(command=["", "x"])])),
    ("a command that is a string", run(tasks=[GOOD, *spec(command="true")])),
    ("a NUL in an argument", run(tasks=[GOOD, *spec(args=["\x00"])])),
    ("an argument no exec can take", run(tasks=[GOOD, *spec(args=["x" * 131_073])])),
    ("an environment that is a list", run(tasks=[GOOD, *spec(env=[])])),
    ("a variable's name with =", run(tasks=[GOOD, *spec(env={"A=B": "1"})])),
    ("a variable that is a number", run(tasks=[GOOD, *spec(env={"A": 1})])),
    ("a variable of the attempt's identity", run(tasks=[GOOD, *spec(env={"RIDEOUT_TOKEN": "x"})])),
    ("a namespace that is none", run(tasks=[GOOD, *spec(namespace="Not_DNS")])),
    ("a label's value that is none", run(tasks=[GOOD, *spec(labels={"a": "no spaces"})])),
    ("a label of ours", run(tasks=[GOOD, *spec(labels={"rideout.dev/epoch": "9"})])),
    ("a quantity that is none", run(tasks=[GOOD, *spec(resources={"limits": {"cpu": "much"}})])),
    ("an image with a space", run(tasks=[GOOD, *spec(image="a b")])),
    ("a timeout of no time", run(tasks=[GOOD, *spec(timeout_s=0)])),
    ("a due time without an offset", run(tasks=[GOOD, task(due_at="2026-01-05T12:00:00")])),
    ("a due time that is none", run(tasks=[GOOD, task(due_at="soon")])),
    ("a due time in no database's range", run(tasks=[GOOD, task(due_at="9999-12-31T23:59:59Z")])),
    ("negative retries", run(tasks=[GOOD, task(retries=-1)])),
    ("too many retries", run(tasks=[GOOD, task(retries=101)])),
    ("a retry delay without end", run(tasks=[GOOD, task(retry_delay_s=1e18)])),
]


@pytest.mark.parametrize("body", [body for _, body in MALFORMED], ids=[name for name, _ in MALFORMED])
async def test_a_malformed_submission_is_a_4xx_problem_and_nothing_of_it_is_stored(untouched, untouched_engine, body):
    status, problem = await untouched.post("/v1/runs", body)
    assert status == 422
    assert all(error["pointer"].startswith("/") for error in problem["errors"])
    assert await stored(untouched_engine) == (0, 0)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b'{"key": NaN}', 422),
        (b'{"key": ' + b"9" * 10_000 + b"}", 400),
        (json.dumps(run(name="\ud800")).encode(), 422),  # half of a surrogate pair: no text
        (b"", 422),
    ],
)
async def test_a_body_that_is_no_json_or_no_text_is_a_4xx_problem(untouched, untouched_engine, body, status):
    told, _ = await untouched.call("POST", "/v1/runs", data=body, headers={"Content-Type": "application/json"})
    assert told == status
    assert await stored(untouched_engine) == (0, 0)


async def test_a_secret_in_a_malformed_submission_is_not_repeated(untouched):
    _, problem = await untouched.post("/v1/runs", run(tasks=[*spec(env={"PASSWORD": "hunter2\x00"})]))
    assert "hunter2" not in json.dumps(problem)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_past_the_bound_is_413(untouched, untouched_engine, chunked):
    body = json.dumps(run(name="x" * MAX_BODY)).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    headers = {"Content-Type": "application/json"}
    status, _ = await untouched.call(
        "POST", "/v1/runs", data=pieces() if chunked else io.BytesIO(body), headers=headers
    )
    assert status == 413
    assert await stored(untouched_engine) == (0, 0)


async def test_a_body_that_drips_is_408(services):
    """A client that never ends its request holds no handler and no connection for ever."""
    async with serving(services, body_within_s=0.2) as client, asyncio.timeout(20):
        host, _, port = client.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert PROBLEM.encode() in answer


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/runs/999", 404),
        ("GET", "/v1/runs/0", 422),
        ("GET", "/v1/runs/x", 422),
        ("GET", f"/v1/runs/{2**63}", 422),
        ("DELETE", "/v1/tasks", 405),
        ("GET", "/v1/tasks?state=lost", 422),
        ("GET", "/v1/tasks?limit=0", 422),
        ("GET", "/v1/tasks?limit=1001", 422),
        ("GET", "/v1/tasks?cursor=x", 422),
        ("GET", "/v1/tasks?reason=%00", 422),
    ],
)
async def test_every_error_is_a_problem_document(untouched, method, path, status):
    told, _ = await untouched.call(method, path)
    assert told == status
