"""A whole run whose fault is sabotaged proves nothing, and says so: unknown, never valid."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from chaos import faults
from chaos.faults import Evidence, Fault, Ground
from chaos.ride import ride
from chaos.scenarios import find

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]
SABOTAGED = {
    "webhook": ("webhook-down", "chaos.faults.webhook_down"),
    "load-balancer": ("load-balancer-502", "chaos.faults.load_balancer"),
    "throttle": ("throttle", "chaos.faults.throttle"),
}


@pytest.mark.parametrize("scenario", SABOTAGED)
def test_a_fault_that_did_not_fire_makes_the_run_unknown(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    name, module = SABOTAGED[scenario]
    monkeypatch.setattr(f"{module}.FIRED_S", 3.0)
    make = faults.FAULTS[name]

    def sabotaged() -> Fault:
        fault = make()

        async def nothing(_: Ground) -> Evidence:
            return {}

        monkeypatch.setattr(fault, "inject", nothing)
        return fault

    monkeypatch.setitem(faults.FAULTS, name, sabotaged)
    log = tmp_path / "told"
    with log.open("w") as told:
        ended = ride(find(scenario, "quick"), 7, tmp_path / "runs", Console(file=told, width=200))
    assert ended.exit_code == 2, log.read_text()
    assert "was answered as it should be" in str(ended.trouble)
    result = json.loads((ended.directory / "result.json").read_text())
    assert result["verdict"] == "unknown"
    assert any("no create in" in reason for reason in result["reasons"])
    for lane in result["lanes"].values():
        fired = lane["checkers"]["fault_fired"]
        assert fired["verdict"] == "unknown"
        assert any(f"{name} was not seen to fire" in reason for reason in fired["reasons"])
    assert not (ended.directory / "undo.json").exists(), "everything is healed on every way out"
