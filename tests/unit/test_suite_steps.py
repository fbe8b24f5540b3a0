"""The waits of a run: what the steady-state gate lets through, and that a run without its load is unknown."""

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.errors import Unknown
from chaos.history import History
from chaos.probe import CONNECTIONS, Sighting
from chaos.sampler import Figures
from chaos.scenarios import Stroke, find
from chaos.stage import Stage
from chaos.steps import steady_state, unsteady, wait_refused, watch_recovery
from chaos.testbed.processes import Supervisor
from chaos.traffic.launcher import Cue, Load

LANES = ("buffered", "tick", "control")
WELL = Figures(Counter(success=12), placed=12, holding=0, oldest_due_age_s=0.5, leader_term=1)


class StillStage(Stage):
    """A stage that stands still: figures and sightings as a test sets them, a load that always lives."""

    def __init__(self, history: History) -> None:
        self.served = {(lane, connection): served(lane, connection) for lane in LANES for connection in CONNECTIONS}
        probe: Any = SimpleNamespace(last=self.served)
        probe.accepting = lambda *key: None if key not in self.served else self.served[key].accepted
        self.figures = dict.fromkeys(LANES, WELL)
        lanes: Any = {
            name: SimpleNamespace(spec=SimpleNamespace(policy="attempts-only" if name == "control" else "window"))
            for name in LANES
        }
        run: Any = SimpleNamespace(scenario=find("upgrade", "quick"), history=history)
        sampler: Any = SimpleNamespace(last=self.figures)
        none: Any = None
        super().__init__(run, none, lanes, probe, sampler, none)

    def check(self) -> None: ...


def served(lane: str, connection: Any, code: int | None = 201, cause: str | None = None) -> Sighting:
    return Sighting(lane, connection, 1.0, 1.1, code, cause)


@pytest.fixture
def stage(tmp_path: Path) -> StillStage:
    return StillStage(History(tmp_path / "history.jsonl", 0.0))


async def test_the_gate_opens_in_the_steady_state(stage: StillStage):
    assert unsteady(stage) == []
    await steady_state(stage)


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (None, "tick does not say how it is"),
        (Figures(Counter(success=9), 9, 0, 0.5, 1), "tick placed 9 of 10 tasks"),
        (Figures(Counter(success=12, scheduled=1), 12, 0, 5.5, 1), "tick has a row that is 5.5 s overdue"),
    ],
)
async def test_a_lane_that_is_not_steady_keeps_the_gate_shut(
    stage: StillStage, monkeypatch: pytest.MonkeyPatch, figures: Figures | None, said: str
):
    monkeypatch.setattr("chaos.steps.GATE_DEADLINE_S", 0.2)
    stage.figures.pop("tick")
    if figures is not None:
        stage.figures["tick"] = figures
    assert unsteady(stage) == [said]
    with pytest.raises(Unknown, match=said):
        await steady_state(stage)


@pytest.mark.parametrize("connection", CONNECTIONS)
async def test_a_probe_that_is_not_served_keeps_the_gate_shut(stage: StillStage, connection: Any):
    stage.served[("tick", connection)] = served("tick", connection, 503, "503 ServiceUnavailable")
    (said,) = unsteady(stage)
    assert "503 ServiceUnavailable" in said
    del stage.served[("tick", connection)]
    assert "no answer yet" in unsteady(stage)[0]


@pytest.mark.parametrize("outcome", ["fail", "info"])
async def test_a_submission_that_failed_before_the_fault_makes_the_run_unknown(stage: StillStage, outcome: Any):
    stage.run.history.write(outcome, "load", "submit", lane="tick", key="k", row=None, due=1.0)
    with pytest.raises(Unknown, match="1 submissions failed"):
        await steady_state(stage)


async def test_the_recovery_is_over_when_the_lanes_that_promise_are_stable(stage: StillStage):
    """The control's rows wait for the backoff of their attempts; nobody promised a minute for them."""
    stage.figures["control"] = Figures(Counter(scheduled=1), 0, 0, 80.0, 1)
    begun = stage.run.history.now()
    await watch_recovery(stage, Stroke("control-plane-stop", hold_s=0, recovery_s=20.0, stable_s=0.2))
    assert stage.run.history.now() - begun < 10
    stage.figures["tick"] = Figures(Counter(scheduled=1), 0, 0, 80.0, 1)
    begun = stage.run.history.now()
    await watch_recovery(stage, Stroke("control-plane-stop", hold_s=0, recovery_s=0.5, stable_s=0.2))
    assert stage.run.history.now() - begun >= 0.5, "not stable, so watched to the end"


async def test_a_load_that_died_makes_the_run_unknown_and_names_its_log(tmp_path: Path):
    supervisor = Supervisor(tmp_path, tmp_path / "state")
    try:
        script = "import sys; sys.exit('error: no such host')"
        process = supervisor.process("locust", [sys.executable, "-c", script])
        process.start()
        await process.wait_exit(20)
        plan: Any = SimpleNamespace(cues=tmp_path / "cues.jsonl")
        with pytest.raises(Unknown, match=r"Locust ended early with 1.*no such host") as told:
            Load(process, plan).check()
        assert told.value.log == process.log
    finally:
        supervisor.close()


def test_cues_are_kept_in_order_and_read_as_they_were_written(tmp_path: Path):
    told = [Cue("warm-up", 1.5), Cue(None, 2.5), Cue(None, 3.5, quit=True)]
    for cue in told:
        cue.append_to(tmp_path / "cues.jsonl")
    assert [Cue.parse(line) for line in (tmp_path / "cues.jsonl").read_text().splitlines()] == told


@pytest.mark.parametrize(("failed", "waits"), [(1, True), (2, False)])
async def test_a_denial_is_held_until_what_it_should_refuse_has_failed(stage: StillStage, failed: int, waits: bool):
    for number in range(2):
        told: dict[str, Any] = {"lane": "tick", "key": f"t-{number}", "due": 1.0, "expect": "rejected"}
        stage.run.history.write("ok", "load", "submit", row=number, **told)
    stage.figures["tick"] = Figures(Counter(success=12, failed=failed), 12, 0, 0.5, 1)
    began = stage.run.history.now()
    await wait_refused(stage, 0.3)
    assert (stage.run.history.now() - began >= 0.3) is waits
