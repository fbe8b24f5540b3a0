"""The directory of a run: runs/<scenario>/<UTC time>-<seed>/, what is written there first, and runs/latest."""

import json
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.errors import ChaosError

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunDir:
    """A run's directory and its zero on both clocks (CLOCK_MONOTONIC and unix time, seconds)."""

    path: Path
    started_mono: float
    started_wall: float

    @classmethod
    def create(cls, runs: Path, scenario: str, seed: int) -> "RunDir":
        """Make the directory with logs/, and point runs/latest at it. Raises ChaosError where that cannot be done."""
        mono, wall = time.monotonic(), time.time()
        stamp = datetime.fromtimestamp(wall, UTC).strftime("%Y%m%dT%H%M%SZ")
        path = (runs / scenario / f"{stamp}-{seed}").resolve()
        try:
            (path / "logs").mkdir(parents=True)
            link = runs / f".latest.{os.getpid()}"
            link.symlink_to(path.relative_to(runs.resolve()))
            link.replace(runs / "latest")
        except FileExistsError as error:
            raise ChaosError(f"{path} is there already: give another seed, or wait a second") from error
        except OSError as error:
            raise ChaosError(f"cannot write to {runs}: {error.strerror}; give another place with --runs-dir") from error
        return cls(path, mono, wall)

    def amend_run(self, **fields: Any) -> None:
        """Add to run.json, or replace what it says."""
        record: Json = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        self.write_run(**{**record, **fields})

    def write_run(self, **fields: Any) -> None:
        """run.json, whole or not at all."""
        clocks = {"schema": 1, "started_wall": self.started_wall, "started_mono": self.started_mono}
        record = {**clocks, **fields}
        temporary = self.path / "run.json.tmp"
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.path / "run.json")


def find_run(name: Path | str, runs: Path) -> Path:
    """A run's directory by its path, by "latest", or by its name under `runs`. Raises ChaosError."""
    for candidate in (Path(name), runs / name, *sorted(runs.glob(f"*/{name}"))):
        if (candidate / "run.json").is_file():
            return candidate.resolve()
    known = sorted(str(path.parent.relative_to(runs)) for path in runs.glob("*/*/run.json"))[-5:]
    there = f"; the newest there are: {', '.join(known)}" if known else f"; there are none under {runs}"
    raise ChaosError(f"no run {str(name)!r}{there}")
