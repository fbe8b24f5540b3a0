"""Agents' reports against real rows: who may run, who no longer may, how it ended (R11, R12, R14, R16)."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dispatcher.reports import Accepted, Refused, Reports, Unproven
from dispatcher.schema import State
from dispatcher.store.reports import End, Reporter
from tests.integration.rows import ManualClock, add_rows, at
from tests.integration.rows import row as look

LEASE_S = 90
REPLACE_AFTER_S = 5

PLACED: dict[str, Any] = {
    "state": "queued",
    "attempt_epoch": 3,
    "pod_name": "pod",
    "pod_uid": "uid",
    "queued_at": at(0),
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reports(engine: AsyncEngine, clock: ManualClock) -> Reports:
    return Reports(engine, clock, lease_s=LEASE_S, replace_after_s=REPLACE_AFTER_S)


async def reporter(engine: AsyncEngine, **columns: Any) -> Reporter:
    [row_id] = await add_rows(engine, **{**PLACED, **columns})
    return Reporter(row_id, 3, "uid", "nonce")


async def running(engine: AsyncEngine, reports: Reports, **columns: Any) -> Reporter:
    who = await reporter(engine, **columns)
    assert await reports.running(who) == Accepted(State.RUNNING)
    return who


async def test_R11_running_is_accepted_for_a_placed_pod(engine, reports, clock):
    who = await reporter(engine, dispatch_unavailable_since=at(-60), infra_replaces=2)
    clock.to(7)
    assert await reports.running(who) == Accepted(State.RUNNING)
    row = await look(engine, who.row_id)
    assert (row.state, row.pod_uid, row.agent_nonce) == ("running", "uid", "nonce")
    assert (row.started_at, row.lease_until) == (at(7), at(7 + LEASE_S))
    assert (row.dispatch_unavailable_since, row.infra_replaces) == (None, 0)  # R8, R20


@pytest.mark.parametrize("state", ["scheduled", "queued"])
async def test_R11_running_is_accepted_before_the_placed_write(engine, reports, state):
    """The pod is quicker than the settlement of its create, or the answer to the create was lost."""
    who = await reporter(
        engine, state=state, pod_name=None, pod_uid=None, claimed_by="replica/1", claim_until=at(30),
        dispatch_unavailable_since=at(-5),
    )  # fmt: skip
    assert await reports.running(who) == Accepted(State.RUNNING)
    row = await look(engine, who.row_id)
    assert (row.claimed_by, row.claim_until, row.dispatch_unavailable_since) == (None, None, None)  # R10, R8


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"attempt_epoch": 4, "pod_uid": None, "pod_name": None}, "stale_epoch"),
        ({"attempt_epoch": 2}, "stale_epoch"),
        ({"pod_uid": "another"}, "other_pod"),
        ({"state": "success", "ended_at": at(0)}, "not_running"),
        ({"state": "failed", "ended_at": at(0)}, "not_running"),
        ({"state": "up_for_retry"}, "not_running"),
        ({"state": "up_for_reschedule"}, "not_running"),
    ],
)
async def test_R11_R14_running_is_refused_where_the_row_proves_it(engine, reports, columns, reason):
    who = await reporter(engine, **columns)
    before = await look(engine, who.row_id)
    told = await reports.running(who)
    assert isinstance(told, Refused)
    assert told.reason == reason
    assert await look(engine, who.row_id) == before


async def test_R14_an_unknown_row_proves_nothing(reports):
    assert await reports.running(Reporter(2**60, 1, "uid", "nonce")) == Unproven(row_exists=False)


async def test_R12_the_same_process_is_accepted_again_and_renews_its_lease(engine, reports, clock):
    who = await running(engine, reports)
    clock.to(30)
    assert await reports.running(who) == Accepted(State.RUNNING)
    row = await look(engine, who.row_id)
    assert (row.started_at, row.lease_until) == (at(0), at(30 + LEASE_S))


async def test_R12_another_process_of_the_same_pod_is_refused(engine, reports):
    """A kubelet can start a container twice."""
    who = await running(engine, reports)
    told = await reports.running(replace(who, nonce="second"))
    assert isinstance(told, Refused)
    assert told.reason == "other_process"


async def test_R11_of_two_pods_of_one_epoch_that_report_at_once_one_runs(engine, reports):
    """A retried create behind our back would make such a pair; the row decides."""
    who = await reporter(engine, pod_uid=None, pod_name=None, state="scheduled")
    others = [replace(who, pod_uid=f"uid-{n}", nonce=f"nonce-{n}") for n in range(8)]
    told = await asyncio.gather(*(reports.running(other) for other in others))
    assert sorted(type(one).__name__ for one in told) == ["Accepted"] + ["Refused"] * 7


async def test_R15_a_heartbeat_renews_the_lease_of_its_own_process_only(engine, reports, clock):
    who = await running(engine, reports)
    clock.to(20)
    assert await reports.heartbeat(who) == Accepted(State.RUNNING)
    assert (await look(engine, who.row_id)).lease_until == at(20 + LEASE_S)
    clock.to(40)
    assert isinstance(await reports.heartbeat(replace(who, nonce="second")), Refused)
    assert isinstance(await reports.heartbeat(replace(who, epoch=2)), Refused)
    assert (await look(engine, who.row_id)).lease_until == at(20 + LEASE_S)


async def test_R15_a_late_heartbeat_never_shortens_the_lease(engine, reports, clock):
    """It waited for a connection while a younger one overtook it: its `now` is older than what the row has."""
    who = await running(engine, reports)
    clock.to(40)
    await reports.heartbeat(who)
    clock.to(20)
    assert await reports.heartbeat(who) == Accepted(State.RUNNING)
    assert (await look(engine, who.row_id)).lease_until == at(40 + LEASE_S)


async def test_R15_a_heartbeat_before_running_proves_nothing(engine, reports):
    assert await reports.heartbeat(await reporter(engine)) == Unproven(row_exists=True)


async def test_R16_success_ends_the_row(engine, reports, clock):
    who = await running(engine, reports)
    clock.to(50)
    assert await reports.finished(who, End.SUCCESS, exit_code=0) == Accepted(State.SUCCESS)
    row = await look(engine, who.row_id)
    assert (row.state, row.ended_at, row.exit_code, row.lease_until) == ("success", at(50), 0, None)
    assert (row.attempt_epoch, row.pod_uid, row.agent_nonce) == (3, "uid", "nonce")


async def test_R16_a_failure_waits_for_its_retry_and_keeps_epoch_uid_and_nonce(engine, reports, clock):
    who = await running(engine, reports, max_tries=3, retries=2, retry_delay=30.5)
    clock.to(50)
    assert await reports.finished(who, End.FAILURE, exit_code=7) == Accepted(State.UP_FOR_RETRY)
    row = await look(engine, who.row_id)
    assert (row.state, row.ended_at, row.next_offer_at, row.try_number) == ("up_for_retry", None, at(80.5), 1)
    assert (row.attempt_epoch, row.pod_uid, row.agent_nonce) == (3, "uid", "nonce")
    assert row.reason == "waits for its retry: exit code 7"


async def test_R21_a_failure_of_the_last_try_fails_the_row(engine, reports, clock):
    who = await running(engine, reports, max_tries=3, try_number=3)
    clock.to(50)
    assert await reports.finished(who, End.FAILURE, exit_code=7) == Accepted(State.FAILED)
    row = await look(engine, who.row_id)
    assert (row.state, row.ended_at, row.reason) == ("failed", at(50), "failed: exit code 7")


async def test_R16_a_reschedule_keeps_epoch_uid_and_nonce(engine, reports, clock):
    who = await running(engine, reports)
    clock.to(50)
    told = await reports.finished(who, End.RESCHEDULE, exit_code=75, reschedule_after_s=120)
    assert told == Accepted(State.UP_FOR_RESCHEDULE)
    row = await look(engine, who.row_id)
    assert (row.state, row.next_offer_at, row.first_reschedule_at) == ("up_for_reschedule", at(170), at(50))
    assert (row.attempt_epoch, row.pod_uid, row.agent_nonce, row.try_number) == (3, "uid", "nonce", 1)


async def test_R15_lost_is_an_infra_re_place_of_the_same_try(engine, reports, clock):
    who = await running(engine, reports, max_tries=2, dispatch_attempts=4)
    clock.to(50)
    assert await reports.finished(who, End.LOST, exit_code=137) == Accepted(State.SCHEDULED)
    row = await look(engine, who.row_id)
    assert (row.state, row.try_number, row.max_tries, row.attempt_epoch) == ("scheduled", 1, 2, 4)
    assert (row.pod_name, row.pod_uid, row.agent_nonce) == (None, None, None)  # R10
    assert (row.dispatch_attempts, row.dispatch_unavailable_since) == (0, None)  # R8
    assert (row.next_offer_at, row.infra_replaces) == (at(50 + REPLACE_AFTER_S), 1)
    told = await reports.finished(who, End.LOST, exit_code=137)
    assert isinstance(told, Refused), "a repeat is stale, and a refusal is an answer"


@pytest.mark.parametrize(
    ("end", "code", "tries"),
    [(End.SUCCESS, 0, 1), (End.FAILURE, 1, 1), (End.FAILURE, 1, 2), (End.RESCHEDULE, 75, 1)],
)
async def test_R16_the_same_end_is_accepted_again_and_changes_nothing(engine, reports, clock, end, code, tries):
    who = await running(engine, reports, max_tries=tries)
    first = await reports.finished(who, end, exit_code=code)
    before = await look(engine, who.row_id)
    clock.to(100)
    assert await reports.finished(who, end, exit_code=code) == first
    assert await look(engine, who.row_id) == before


async def test_R16_another_end_than_the_recorded_one_is_refused(engine, reports):
    who = await running(engine, reports)
    await reports.finished(who, End.SUCCESS, exit_code=0)
    assert isinstance(await reports.finished(who, End.FAILURE, exit_code=1), Refused)
    assert isinstance(await reports.finished(who, End.LOST, exit_code=None), Refused)
    assert (await look(engine, who.row_id)).state == "success"
    who = await running(engine, reports)
    await reports.finished(who, End.FAILURE, exit_code=1)
    assert isinstance(await reports.finished(who, End.FAILURE, exit_code=2), Refused)


@pytest.mark.parametrize("change", [{"epoch": 2}, {"pod_uid": "another"}, {"nonce": "second"}])
@pytest.mark.parametrize("end", list(End))
async def test_R16_a_stale_end_is_refused_and_changes_nothing(engine, reports, change, end):
    who = await running(engine, reports)
    before = await look(engine, who.row_id)
    assert isinstance(await reports.finished(replace(who, **change), end, exit_code=0), Refused)
    assert await look(engine, who.row_id) == before


async def test_R16_an_end_is_accepted_past_the_lease_while_the_row_still_runs_under_it(engine, reports, clock):
    who = await running(engine, reports)
    clock.to(10 * LEASE_S)
    assert await reports.finished(who, End.SUCCESS, exit_code=0) == Accepted(State.SUCCESS)


async def test_R14_a_lost_before_running_was_accepted_proves_nothing(engine, reports):
    who = await reporter(engine)
    assert await reports.finished(who, End.LOST) == Unproven(row_exists=True)
    assert (await look(engine, who.row_id)).state == "queued"


async def test_R14_a_database_that_is_away_is_an_exception_and_no_refusal(clock):
    engine = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/nowhere")
    reports = Reports(engine, clock, lease_s=LEASE_S, replace_after_s=REPLACE_AFTER_S)
    with pytest.raises(SQLAlchemyError):
        await reports.running(Reporter(1, 1, "uid", "nonce"))
    await engine.dispose()
