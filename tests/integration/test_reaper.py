"""The reaper and the pod clean-up conclude from complete lists only, and never while they could be wrong."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher.executors.pods import ListFailed, PodFact, fact_of
from dispatcher.outage import ApiHealth
from dispatcher.podgc import PodGc, doomed
from dispatcher.reaper import Reaper, what_is_gone
from dispatcher.rules import Disposition
from dispatcher.store.recovery import Owner, PlacedRow, RePlacePolicy
from tests.integration.rows import NOW, ManualClock, add_rows, at, row, running

POD = PodFact("tasks", "pod-1", "uid-1", 1, 3, False, None, bound=False, started=False, deleted=False, reason="Pending")
SILENT = PlacedRow(1, 3, "tasks", "pod-1", "uid-1", "kubernetes")


class Api:
    """The pods that a list would show, or no list at all."""

    def __init__(self, *pods: PodFact) -> None:
        self.pods: list[PodFact] | None = list(pods)
        self.deleted: list[str] = []

    async def list_all(self, namespaces: Iterable[str]) -> list[PodFact]:
        if self.pods is None:
            raise ListFailed("no list")
        return [pod for pod in self.pods if pod.namespace in set(namespaces)]

    async def delete(self, pod: PodFact) -> bool:
        self.deleted.append(pod.uid)
        return True


def reaper_of(engine: AsyncEngine, api: Api, clock: ManualClock, health: ApiHealth | None = None) -> Reaper:
    return Reaper(
        engine=engine, clock=clock, pods=api, health=health or ApiHealth(), policy=RePlacePolicy(),
        lease_s=90, placed_timeout_s=300, orphan_run_s=300,
    )  # fmt: skip


def down() -> ApiHealth:
    health = ApiHealth()
    for row_id in (1, 2):
        health.note(row_id, Disposition.UNAVAILABLE, "connection refused", NOW)
    return health


PLACED: dict[str, Any] = {
    "state": "queued",
    "pod_name": "pod-1",
    "pod_uid": "uid-1",
    "queued_at": NOW,
    "attempt_epoch": 3,
}


@pytest.mark.parametrize(
    ("pod", "gone"),
    [
        (None, True),
        (replace(POD, finished=True, reason="Error"), True),
        (replace(POD, bound=True), True),
        (replace(POD, deleted=True), True),
        (POD, False),
        (replace(POD, bound=True, started=True), False),
    ],
    ids=["absent", "finished", "bound, not started", "being deleted", "waits for a node", "started"],
)
def test_R20_what_a_complete_list_proves(pod: PodFact | None, gone: bool):
    assert bool(what_is_gone([SILENT], [pod] if pod else [])) is gone


def test_R22_another_pod_of_the_row_is_no_evidence_for_it():
    assert what_is_gone([SILENT], [replace(POD, uid="another", finished=True)])[0].reason == "the pod is gone"


def test_R22_no_list_proves_nothing():
    assert what_is_gone([SILENT], None) == []


async def test_R20_a_silent_row_is_re_placed_when_a_list_shows_its_pod_gone(engine: AsyncEngine):
    (row_id,) = await add_rows(engine, **PLACED)
    clock, api = ManualClock(), Api()
    for second, state in [(299, "queued"), (300, "scheduled")]:
        clock.to(second)
        await reaper_of(engine, api, clock).round(at(-90))
        assert (await row(engine, row_id)).state == state, second


@pytest.mark.parametrize(
    ("health", "steady_since", "listed"),
    [(down(), at(-90), True), (ApiHealth(), at(211), True), (ApiHealth(), None, True), (ApiHealth(), at(-90), False)],
    ids=["API down", "leads since less than a lease", "database just back", "list failed"],
)
async def test_R20_nothing_is_re_placed_while_it_could_be_wrong(
    engine: AsyncEngine, health: ApiHealth, steady_since: datetime | None, listed: bool
):
    (row_id,) = await add_rows(engine, **PLACED)
    clock, api = ManualClock(at(300)), Api()
    if not listed:
        api.pods = None
    await reaper_of(engine, api, clock, health).round(steady_since)
    assert (await row(engine, row_id)).state == "queued"


async def test_R20_a_lease_expires_also_while_the_api_is_down(engine: AsyncEngine):
    (row_id,) = await add_rows(engine, **running())
    await reaper_of(engine, Api(), ManualClock(at(90)), down()).round(at(0))
    assert (await row(engine, row_id)).state == "scheduled"


async def test_R9_a_lite_row_that_never_reports_is_re_placed_without_a_list(engine: AsyncEngine):
    (row_id,) = await add_rows(engine, **PLACED, executor="subprocess")
    api = Api()
    api.pods = None
    await reaper_of(engine, api, ManualClock(at(300)), down()).round(at(-90))
    assert (await row(engine, row_id)).state == "scheduled"


@pytest.mark.parametrize(
    ("owner", "pod", "goes"),
    [
        (Owner(3, "uid-1"), POD, False),
        (Owner(3, None), POD, False),
        (Owner(4, None), POD, True),
        (Owner(3, "another"), POD, True),
        (None, POD, True),
        (Owner(2, None), POD, False),
        (Owner(3, "uid-1"), replace(POD, finished=True, finished_at=at(-1)), True),
        (Owner(3, "uid-1"), replace(POD, finished=True, finished_at=at(1)), False),
        (Owner(4, None), replace(POD, deleted=True), False),
    ],
    ids=[
        "its own", "not placed yet", "stale epoch", "another pod has the attempt", "no such row",
        "listed before the row was read", "finished long ago", "finished just now", "going already",
    ],
)  # fmt: skip
def test_R22_which_pods_may_go(owner: Owner | None, pod: PodFact, goes: bool):
    owners = {1: owner} if owner else {}
    assert bool(doomed([pod], owners, before=NOW)) is goes


async def test_R22_stale_pods_go_when_the_api_answers_and_not_before(engine: AsyncEngine):
    (row_id,) = await add_rows(engine, attempt_epoch=5)
    api = Api(replace(POD, row_id=row_id))

    def gc(health: ApiHealth) -> PodGc:
        return PodGc(engine=engine, clock=ManualClock(), pods=api, health=health, namespace="tasks", finished_ttl_s=300)

    assert await gc(down()).round() == 0
    assert await gc(ApiHealth()).round() == 1
    assert api.deleted == ["uid-1"]


def test_R22_a_pod_without_our_labels_is_none_of_ours():
    pod: dict[str, Any] = {"metadata": {"namespace": "n", "name": "p", "uid": "u", "labels": {"rideout.dev/row": "x"}}}
    assert fact_of(pod) is None


def test_R20_a_pods_own_reason_is_told():
    status = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    labels = {"rideout.dev/row": "1", "rideout.dev/epoch": "3"}
    pod = {
        "metadata": {"namespace": "n", "name": "p", "uid": "u", "labels": labels},
        "spec": {"nodeName": "a"},
        "status": status,
    }
    fact = fact_of(pod)
    assert fact is not None
    assert (fact.reason, fact.cannot_report) == ("ImagePullBackOff", True)
