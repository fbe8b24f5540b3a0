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

from chaos.errors import Unknown
from chaos.testbed.processes import ManagedProcess, Supervisor

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


class Load:
    """Locust while it runs: the run gives cues, watches that it lives, and reads what it reached."""

    def __init__(self, process: ManagedProcess, plan: LoadPlan) -> None:
        self.process = process
        self.plan = plan

    def cue(self, segment: str | None, at: float | None = None) -> float:
        """Begin a segment (or silence) at `at` (CLOCK_MONOTONIC, default now); returns that time."""
        begin = time.monotonic() if at is None else at
        Cue(segment, begin).append_to(self.plan.cues)
        return begin

    def check(self) -> None:
        """Raises Unknown when Locust is gone: a run whose load stopped proves nothing."""
        if not self.process.alive:
            code, why = self.process.exit_code, self.process.telling()
            raise Unknown(
                f"Locust ended early with {code}, so the load is not what it claims: {why}", log=self.process.log
            )

    async def finish(self, deadline_s: float = 45.0) -> dict[str, Any]:
        """Wait for the last answers, end Locust, and return what it reached, by segment and lane."""
        self.check()
        Cue(None, time.monotonic(), quit=True).append_to(self.plan.cues)
        await self.process.wait_exit(deadline_s)
        try:
            return dict(json.loads(self.plan.summary.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise Unknown(f"Locust left no summary of its load: {error}", log=self.process.log) from error


def prepare(supervisor: Supervisor, plan: LoadPlan, plan_file: Path) -> Load:
    """Locust, not started yet. One process serves all lanes: a few tasks a second are no load for it."""
    plan.write(plan_file)
    plan.cues.touch()
    locust = command(LOCUSTFILE, users=len(plan.lanes))
    return Load(supervisor.process("locust", locust, env={"RIDEOUT_LOAD": str(plan_file)}, cwd=REPOSITORY), plan)


def command(locustfile: Path, users: int) -> list[str]:
    """Locust without its web server; failed submissions are the history's business, not its exit code's."""
    argv = [sys.executable, "-m", "locust", "-f", str(locustfile), "--headless", "--only-summary"]
    return [*argv, "--users", str(users), "--spawn-rate", str(users), "--exit-code-on-error", "0"]
