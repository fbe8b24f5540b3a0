"""The suite's own history: operations and faults of every process on one monotonic clock, as JSON lines.

The third witness of a run (beside the ledger and the audit log). Four types, as Jepsen has them: `invoke`,
then `ok`, `fail`, or `info` where the outcome is not known. What the *dispatcher* says of itself is written
here too, marked by its op (`create`, `row`), as a claim to be judged and never as evidence.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self

from chaos import jsonl

EventType = Literal["invoke", "ok", "fail", "info"]
RESERVED = ("t", "type", "process", "op")


class History:
    """An append-only writer. Any number of processes and threads may write to one file at the same time.

    `started_mono` is the run's zero: CLOCK_MONOTONIC in seconds, which is the same in all processes of a
    machine.
    """

    def __init__(self, path: Path | str, started_mono: float) -> None:
        self.path = Path(path)
        self.started_mono = started_mono
        self._fd = jsonl.open_append(self.path)

    def now(self) -> float:
        """Seconds since the run's start, on the run clock."""
        return time.monotonic() - self.started_mono

    def write(self, type_: EventType, process: str, op: str, /, *, t: float | None = None, **fields: Any) -> float:
        """Append one event; returns its time on the run clock, in seconds.

        `process` is "suite", "load", "node", "probe" or "<lane>/<replica>". `t` is given where the event is
        older than its writing (claims that are copied at the end). A field that is named like one of the four
        fixed ones is dropped: lines of other programs are copied here and must not pose as something else.
        Raises OSError when the line could not be written whole.
        """
        at = self.now() if t is None else t
        extra = {name: value for name, value in fields.items() if name not in RESERVED}
        jsonl.append(self._fd, {"t": round(at, 6), "type": type_, "process": process, "op": op, **extra})
        return at

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def read(path: Path | str) -> list[dict[str, Any]]:
        """All events in the order of their writing. A torn last line is dropped; a missing file is empty."""
        return list(jsonl.read(Path(path)))

    @staticmethod
    def stream(path: Path | str, damage: jsonl.Damage | None = None) -> Iterator[dict[str, Any]]:
        """The same one by one, for large runs; what could not be read is told to `damage`."""
        return jsonl.read(Path(path), damage)
