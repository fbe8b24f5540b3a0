"""What a scenario is: a claim in two sentences, lanes, the load, strokes of faults, budgets. Data, no code.

`chaos.run` plays any of them the same way; a new scenario is one file and one line in the registry.
All durations are seconds, rates are tasks a second and lane.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Optional

from chaos.traffic.schedule import Burst, Segment, Steady

Profile = Literal["full", "quick"]
PROFILES: tuple[Profile, ...] = ("full", "quick")


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """One dispatcher system under the run's faults: its own database, namespace, replicas and load."""

    name: str
    mode: Literal["buffered", "tick"]
    replicas: int = 1
    policy: Literal["window", "attempts-only"] = "window"
    program: tuple[str, ...] = ("-m", "dispatcher")
    """What Python runs; `serve` and `migrate` are appended. Broken dispatchers are put to the test this way."""
    env: dict[str, str] = field(default_factory=dict)


THREE_LANES = (
    LaneSpec("buffered", "buffered", replicas=2),
    LaneSpec("tick", "tick"),
    LaneSpec("control", "tick", policy="attempts-only"),
)
"""Both dispatch paths, and beside them the rule from before the decision under the same outage."""
BOTH_PATHS = THREE_LANES[:2]
"""For faults that the rule from before the decision says nothing about."""


@dataclass(frozen=True, slots=True)
class Stroke:
    """One fault: what the load does around it, how long it is held, and how long its recovery is watched."""

    fault: str
    hold_s: float
    refused_within_s: float = 0.0
    """It is held on until every task that should be refused has failed, at most this much longer."""
    load_before: str | None = None
    """A segment that is cued before the fault is injected; it is injected `before_s` later (warm pools)."""
    before_s: float = 0.0
    load_fired: str | None = None
    """A segment that is cued once the fault is confirmed; None keeps the one that holds."""
    load_healed: str | None = None
    recovery_s: float = 0.0
    """The recovery is watched at most this long, or until every row that was due by then is answered ..."""
    stable_s: float = 0.0
    """... and nothing waited for this long after that."""
    phase: str | None = None
    """One name for all its phases in the history and on the screen, instead of inject, hold, heal, recovery."""
    then: Optional["Stroke"] = None
    """A fault that takes over without a gap: it is injected before this one is healed, so the two must not turn the
    same knob. What happens when all are over (`load_healed`, `recovery_s`, `stable_s`) is read from the first."""
    meanwhile: tuple["Stroke", ...] = ()
    """Faults struck one after the other, each from its injection to its recovery, while this one goes on holding; the
    first of them `hold_s` after this one was confirmed."""

    def chain(self) -> Iterator["Stroke"]:
        """This stroke and those that take over, in order."""
        yield self
        if self.then is not None:
            yield from self.then.chain()

    def all(self) -> Iterator["Stroke"]:
        """Every fault of it, also those struck meanwhile, in the order of their injection."""
        for one in self.chain():
            yield one
            for inner in one.meanwhile:
                yield from inner.all()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario in one profile."""

    name: str
    profile: Profile
    claim: str
    lanes: tuple[LaneSpec, ...]
    segments: tuple[Segment, ...]
    strokes: tuple[Stroke, ...]
    budgets: dict[str, float]
    """Figures that checkers and the report hold the run against; see each scenario."""
    warm_up_s: float
    warm_up_placed: int
    """Rows a lane must have placed before the steady state is looked at."""
    steady_within_s: float = 5.0
    """Steady state: submissions succeed, the probe is served, no due row waits for longer than this."""
    lead_s: float = 0.5
    """A task is submitted this long before it is due."""
    drain_deadline_s: float = 120.0
    agents_in_process: bool = False
    probe_interval_s: float = 2.0
    sample_interval_s: float = 1.0
    webhook_timeout_s: int = 10
    load_balancer_timeout_s: float | None = None
    """How long a load balancer before the apiserver waits for its answer; None for no load balancer."""
    only_full: str = ""
    """Why it cannot be run in the quick profile; empty if it can."""

    def runs_in(self, profile: Profile) -> bool:
        return profile == "full" or not self.only_full


@dataclass(frozen=True, slots=True)
class Pace:
    """What scenarios have in common in a profile."""

    recovery_s: float
    """R5's minute; quick: 6 s of hold and 4 s more."""
    stable_s: float
    work_s: tuple[float, float]
    warm_up: Segment
    """The load before anything is broken."""
    common: dict[str, Any]
    """Fields of `Scenario`."""

    @property
    def after(self) -> dict[str, Any]:
        """How the recovery from a stroke is watched: fields of `Stroke`."""
        return {"recovery_s": self.recovery_s, "stable_s": self.stable_s}


PACE: dict[Profile, Pace] = {
    "full": Pace(
        recovery_s=60.0,
        stable_s=10.0,
        work_s=(1.0, 2.0),
        warm_up=Segment("warm-up", (Burst(4, within_s=2.0), Steady(0.4, 180)), (1.0, 2.0)),
        common={
            "profile": "full",
            "warm_up_s": 20.0,
            "warm_up_placed": 8,
            "drain_deadline_s": 180.0,
        },
    ),
    "quick": Pace(
        recovery_s=10.0,
        stable_s=3.0,
        work_s=(0.1, 0.3),
        warm_up=Segment("warm-up", (Burst(4, within_s=2.0), Steady(2.0, 180)), (0.1, 0.3)),
        common={
            "profile": "quick",
            "warm_up_s": 5.0,
            "warm_up_placed": 8,
            "drain_deadline_s": 90.0,
            "agents_in_process": True,
            "probe_interval_s": 1.0,
            "sample_interval_s": 0.5,
            "webhook_timeout_s": 3,
        },
    ),
}
