"""Starts Locust as a child of the run, gives it its cues, and says when it died.

The hand-over is one JSON file (`LoadPlan`) and one file of cues (`Cue`), both kept in the run's directory, so that
what the load was told can be read afterwards.
"""

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

REPOSITORY = Path(__file__).resolve().parents[2]
LOCUSTFILE = Path(__file__).with_name("locustfile.py")
WORK = Path(__file__).with_name("work.py")


@dataclass(frozen=True, slots=True)
class Target:
    """A lane as a submitter sees it: every replica's URL, and the submitters' token if the lane asks for one."""

    lane: str
    urls: list[str]
    token: str | None = None


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Everything Locust needs. `started_mono` and `started_wall` are the run's zero on both clocks, in seconds."""

    run_key: str
    started_mono: float
    started_wall: float
    history: Path
    schedule: Path
    cues: Path
    summary: Path
    image: str
    command: list[str]
    env: dict[str, str]
    lanes: dict[str, Target]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1, default=str) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name in ("history", "schedule", "cues", "summary"):
            raw[name] = Path(raw[name])
        raw["lanes"] = {name: Target(**lane) for name, lane in raw["lanes"].items()}
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class Cue:
    """From `at` (CLOCK_MONOTONIC, seconds) on, `segment` of the schedule holds; None is silence."""

    segment: str | None
    at: float
    quit: bool = False

    @classmethod
    def parse(cls, line: str) -> Self:
        return cls(**json.loads(line))

    def append_to(self, path: Path) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, (json.dumps(asdict(self)) + "\n").encode())
        finally:
            os.close(fd)
