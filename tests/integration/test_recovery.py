"""Re-places, clears, cancels, the orphan-run reaper, pause: each statement under its guard."""

from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher.schema import runs
from dispatcher.store import operators, recovery
from dispatcher.store.claims import claim_due
from dispatcher.store.recovery import Gone, RePlacePolicy
from tests.integration.rows import NOW, add_rows, at, row, running

POLICY = RePlacePolicy()


async def run_state(engine: AsyncEngine) -> str:
    async with engine.connect() as connection:
        return str((await connection.execute(select(runs.c.state))).scalar_one())


async def test_R20_a_running_row_is_re_placed_only_when_its_whole_lease_has_passed(engine: AsyncEngine):
    (row_id,) = await add_rows(engine, **running(), attempt_epoch=3, dispatch_attempts=2, try_number=1, max_tries=3)
    async with engine.begin() as connection:
        assert await recovery.re_place_expired_leases(connection, now=at(89.999), policy=POLICY) == []
        assert await recovery.re_place_expired_leases(connection, now=at(90), policy=POLICY) == [row_id]
    after = await row(engine, row_id)
    assert (after.state, after.attempt_epoch, after.try_number, after.max_tries) == ("scheduled", 4, 1, 3)
    assert (after.dispatch_attempts, after.pod_uid, after.agent_nonce) == (0, None, None)
    assert (after.infra_replaces, after.next_offer_at) == (1, at(95))
    assert after.lease_until == at(90), "R10: kept"


@pytest.mark.parametrize(("replaces", "wait_s"), [(0, 5), (1, 10), (2, 20), (3, 40), (4, 80)], ids=lambda v: str(v))
async def test_R20_re_places_back_off(engine: AsyncEngine, replaces: int, wait_s: int):
    (row_id,) = await add_rows(engine, **running(), infra_replaces=replaces)
    async with engine.begin() as connection:
        await recovery.re_place_expired_leases(connection, now=at(100), policy=POLICY)
    assert (await row(engine, row_id)).next_offer_at == at(100 + wait_s)


async def test_R20_the_sixth_re_place_in_a_row_fails_terminally_with_the_pods_reason(engine: AsyncEngine):
    (row_id,) = await add_rows(
        engine, state="queued", pod_name="p", pod_uid="u", queued_at=NOW, infra_replaces=5, max_tries=4
    )
    async with engine.begin() as connection:
        assert await recovery.re_place_if_still_placed(
            connection, [Gone(row_id, 0, "u", "Evicted")], now=at(400), policy=POLICY
        ) == {row_id}
    after = await row(engine, row_id)
    assert (after.state, after.reason, after.max_tries, after.ended_at) == (
        "failed",
        "infra_failed: Evicted",
        1,
        at(400),
    )


@pytest.mark.parametrize(
    "columns",
    [
        {"attempt_epoch": 1},
        {"pod_uid": "another"},
        {"state": "scheduled"},
        {"claimed_by": "r1", "claim_until": at(30)},
        running("u"),
    ],
    ids=["new epoch", "another pod", "re-offered", "claimed", "running"],
)
async def test_R20_a_row_that_moved_on_is_not_re_placed(engine: AsyncEngine, columns: dict[str, Any]):
    (row_id,) = await add_rows(
        engine, **{"state": "queued", "pod_name": "p", "pod_uid": "u", "queued_at": NOW, **columns}
    )
    before = await row(engine, row_id)
    async with engine.begin() as connection:
        gone = [Gone(row_id, 0, "u", "gone")]
        assert await recovery.re_place_if_still_placed(connection, gone, now=at(400), policy=POLICY) == set()
    assert await row(engine, row_id) == before


async def test_R20_only_placed_rows_past_their_time_are_looked_at(engine: AsyncEngine):
    (waiting,) = await add_rows(engine, state="queued", pod_name="p", pod_uid="u", queued_at=NOW)
    await add_rows(engine, state="queued", queued_at=NOW, claimed_by="r1", claim_until=at(30))
    await add_rows(engine, state="queued", pod_name="p", pod_uid="u2", queued_at=at(1))
    async with engine.connect() as connection:
        found = await recovery.placed_without_report(connection, placed_before=NOW)
    assert [one.id for one in found] == [waiting]


async def test_R21_a_clear_starts_a_new_try_with_the_users_retries(engine: AsyncEngine):
    (row_id,) = await add_rows(
        engine, state="failed", ended_at=NOW, try_number=2, max_tries=2, retries=3, attempt_epoch=7,
        dispatch_attempts=6, dispatch_unavailable_since=NOW, infra_replaces=2,
    )  # fmt: skip
    async with engine.begin() as connection:
        assert await operators.clear_if_not_running(connection, [row_id], now=at(50)) == {row_id}
    after = await row(engine, row_id)
    assert (after.state, after.try_number, after.max_tries, after.attempt_epoch) == ("scheduled", 3, 6, 8)
    assert (after.dispatch_attempts, after.dispatch_unavailable_since, after.infra_replaces) == (0, None, 0)
    assert (after.next_offer_at, after.ended_at) == (at(50), None)


async def test_R21_a_clear_is_refused_for_a_running_row(engine: AsyncEngine):
    (row_id,) = await add_rows(engine, **running())
    async with engine.begin() as connection:
        assert await operators.clear_if_not_running(connection, [row_id], now=at(50)) == set()
    assert (await row(engine, row_id)).state == "running"


async def test_R21_a_cancelled_row_is_not_offered_again_before_its_lease_has_run_out(engine: AsyncEngine):
    (row_id,) = await add_rows(engine, **running())
    async with engine.begin() as connection:
        assert await operators.cancel_live_rows(connection, (await row(engine, row_id)).run_id, now=at(10)) == 1
    cancelled = await row(engine, row_id)
    assert (cancelled.state, cancelled.reason, cancelled.attempt_epoch) == ("failed", "cancelled", 1)
    assert cancelled.lease_until == at(90), "R21: kept"
    assert await run_state(engine) == "failed"
    async with engine.begin() as connection:
        await operators.clear_if_not_running(connection, [row_id], now=at(20))
    assert (await row(engine, row_id)).next_offer_at == at(90)
    assert await run_state(engine) == "running", "the run is open again"


@pytest.mark.parametrize("state", ["scheduled", "queued", "running", "up_for_retry", "up_for_reschedule"])
async def test_R21_a_run_with_a_live_row_is_not_reaped_however_long_it_waits(engine: AsyncEngine, state: str):
    await add_rows(engine, **(running() if state == "running" else {"state": state}))
    async with engine.begin() as connection:
        assert await recovery.fail_orphan_runs(connection, now=at(86_400), orphan_s=300) == 0


async def test_R21_a_run_without_a_live_row_is_failed_after_five_minutes(engine: AsyncEngine):
    await add_rows(engine, state="success", ended_at=at(100))
    async with engine.begin() as connection:
        assert await recovery.fail_orphan_runs(connection, now=at(399), orphan_s=300) == 0
        assert await recovery.fail_orphan_runs(connection, now=at(400), orphan_s=300) == 1


async def test_R8_a_pause_keeps_outage_starts_and_a_resume_says_who_is_at_risk(engine: AsyncEngine):
    (row_id,) = await add_rows(engine, dispatch_unavailable_since=NOW)
    await add_rows(engine, dispatch_unavailable_since=at(500))
    async with engine.begin() as connection:
        await operators.pause(connection, now=at(10))
        await operators.pause(connection, now=at(20))
        assert await claim_due(
            connection, now=at(20), limit=5, replica="r", until=at(50), mark_queued=False
        ) == []  # fmt: skip
        assert await operators.resume(connection, now=at(901), window_s=900, restart_windows=False) == (True, 1)
        assert (await row(engine, row_id)).dispatch_unavailable_since == NOW
        assert await operators.resume(connection, now=at(901), window_s=900, restart_windows=True) == (False, 1)
    assert (await row(engine, row_id)).dispatch_unavailable_since is None
