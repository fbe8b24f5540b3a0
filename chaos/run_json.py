"""run.json: what was run, with which lanes, budgets and settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from chaos.errors import ChaosError

# What the settings are where run.json does not say. Seconds; rules.md, "Defaults" and its quick profile.
FULL = {
    "window_s": 900.0,
    "attempts": 6.0,
    "backoff_s": 5.0,
    "hold_max_s": 60.0,
    "create_deadline_s": 15.0,
    "offer_lead_s": 3.0,
    "tick_s": 1.0,
    "rate_wait_s": 2.0,
    "backpressure_delay_s": 10.0,
    "backpressure_max_s": 60.0,
    "buffer_wait_s": 10.0,
    "lease_s": 90.0,
    "lease_margin_s": 15.0,
}
QUICK = {
    "window_s": 90.0,
    "attempts": 6.0,
    "backoff_s": 0.5,
    "hold_max_s": 6.0,
    "create_deadline_s": 5.0,
    "offer_lead_s": 0.3,
    "tick_s": 0.1,
    "rate_wait_s": 0.2,
    "backpressure_delay_s": 1.0,
    "backpressure_max_s": 6.0,
    "buffer_wait_s": 1.0,
    "lease_s": 30.0,
    "lease_margin_s": 5.0,
}
COMPARED = ("upgrade", "webhook")
"""Scenarios whose point is that the rule from before the decision fails tasks under the same outage."""
RECOVERY_BUDGET_S = {"full": 60.0, "quick": 10.0}


@dataclass(slots=True, frozen=True)
class LaneInfo:
    """What run.json says of a lane."""

    name: str
    mode: str = "tick"
    policy: str = "window"
    replicas: int = 1
    namespace: str = ""
    urls: tuple[str, ...] = ()

    @property
    def decides(self) -> bool:
        """The control (`attempts-only`) is there to be compared with; its verdict never counts."""
        return self.policy != "attempts-only"


@dataclass(slots=True, frozen=True)
class Run:
    """run.json."""

    scenario: str
    profile: str
    cluster: str
    kubernetes: str
    seed: int
    started_wall: float
    started_mono: float
    lanes: dict[str, LaneInfo]
    budgets: dict[str, float]
    settings: dict[str, Any]
    claim: str
    command: str
    raw: dict[str, Any]

    def setting(self, name: str) -> float:
        """A setting of the dispatchers as a number (seconds or a count), else its default in this profile."""
        value = self.settings.get(name)
        if isinstance(value, int | float):
            return float(value)
        return (QUICK if self.profile == "quick" else FULL)[name]

    @property
    def compared(self) -> bool:
        """Whether the control is expected to fail tasks here, so that the outage has to be long enough for it."""
        return self.scenario in COMPARED and any(not lane.decides for lane in self.lanes.values())

    @property
    def recovery_budget_s(self) -> float:
        return float(self.budgets.get("recovery_s", RECOVERY_BUDGET_S.get(self.profile, 60.0)))

    @property
    def attempts_span_s(self) -> float:
        """How long the attempt budget lasts from the first rejection to the last: 155 s by default (R6)."""
        return float(self.setting("backoff_s") * (2 ** (self.setting("attempts") - 1) - 1))

    @classmethod
    def read(cls, path: Path) -> "Run":
        """Raises ChaosError, in one line, for a file that is missing or is not what it should be."""
        try:
            raw = orjson.loads(path.read_bytes())
            lanes = {
                name: LaneInfo(
                    name=name,
                    mode=info.get("mode", "tick"),
                    policy=info.get("policy", "window"),
                    replicas=int(info.get("replicas", 1)),
                    namespace=info.get("namespace") or f"tasks-{name}",
                    urls=tuple(info.get("urls", ())),
                )
                for name, info in raw["lanes"].items()
            }
            return cls(
                scenario=raw["scenario"],
                profile=raw.get("profile", "full"),
                cluster=raw.get("cluster", "local"),
                kubernetes=raw.get("kubernetes", ""),
                seed=int(raw.get("seed", 0)),
                started_wall=float(raw["started_wall"]),
                started_mono=float(raw["started_mono"]),
                lanes=lanes,
                budgets={name: float(value) for name, value in raw.get("budgets", {}).items() if _is_number(value)},
                settings=raw.get("settings", {}),
                claim=raw.get("claim", ""),
                command=raw.get("command", ""),
                raw=raw,
            )
        except FileNotFoundError:
            raise ChaosError(f"{path} is missing: is {path.parent} the directory of a run?") from None
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ChaosError(f"{path} cannot be read as a run's description ({error!r})") from error


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
