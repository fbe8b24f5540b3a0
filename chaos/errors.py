"""What the suite tells people when it cannot go on: one line that names the thing and the remedy.

Every error that is meant for a person derives from `ChaosError`; the command line prints its message, then the
log's path when there is one, and exits with `exit_code`. Anything else that escapes is a bug and keeps its traceback.
"""

from pathlib import Path


class ChaosError(Exception):
    """The suite, its testbed or its machine failed. `log` is the file that tells more."""

    exit_code = 2

    def __init__(self, message: str, *, log: Path | None = None) -> None:
        super().__init__(message)
        self.log = log


class UsageError(ChaosError):
    """The user asked for something that does not exist or makes no sense."""

    exit_code = 64


class Unknown(ChaosError):
    """A step of a run failed its own test, so that the run proves nothing either way."""
