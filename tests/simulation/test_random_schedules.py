"""Random schedules, all invariants after every step (R1-R22). `make simulate N=1000 SEED=7` runs more of them."""

import json
import os
import time
from dataclasses import asdict

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.simulation.lasting import Lasting
from tests.simulation.machine import STEPS, Counts, Schedules

SEED = int(os.environ.get("RIDEOUT_SIMULATION_SEED", "1"))
SCHEDULES = int(os.environ.get("RIDEOUT_SIMULATION_SCHEDULES", "300"))
RESULT = os.environ.get("RIDEOUT_SIMULATION_RESULT")


@pytest.mark.timeout(0)
def test_every_invariant_holds_after_every_step_of_random_schedules(lasting: Lasting) -> None:
    """A failure prints the seed and a schedule that Hypothesis has shrunk."""
    Schedules.lasting, Schedules.counts = lasting, Counts()
    began, cpu = time.monotonic(), time.process_time()
    print(f"seed {SEED}")
    machine = seed(SEED)(Schedules)
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=SCHEDULES + SCHEDULES // 4 + 5,  # short ones are run and not counted
                stateful_step_count=STEPS,
                database=None,
                deadline=None,
                print_blob=True,
                report_multiple_bugs=False,
                phases=(Phase.generate, Phase.shrink) if not os.environ.get("NOSHRINK") else (Phase.generate,),
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        took, counts = time.monotonic() - began, Schedules.counts
        print(f"{counts} in {took:.0f} s, {time.process_time() - cpu:.0f} s of CPU")
        if RESULT:
            with open(RESULT, "w") as file:
                json.dump({**asdict(counts), "seed": SEED, "took_s": took}, file)
    assert counts.schedules >= SCHEDULES
