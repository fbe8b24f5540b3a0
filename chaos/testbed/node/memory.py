"""Which pod uids the node has started, on disk, so that a node that comes back never starts one twice.

One JSON line an event, appended and fsynced *before* the process is started: a node that dies between the two has
lost that pod (it reports it as failed), and that is the right way round. Its end is remembered as well, so that an
exit code which the API could not take yet survives the node.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import jsonl


@dataclass
class Known:
    """What is remembered of a uid: the process (pid and start time in clock ticks), and its exit code."""

    pid: int | None = None
    start: int | None = None
    code: int | None = None
    ended: bool = False


class Memory:
    """The uids of one node's life, read back at its start."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "uids.jsonl"
        self.known: dict[str, Known] = {}
        for line in jsonl.read(path):
            self._apply(line)
        _mend(path)
        self._fd = jsonl.open_append(path)

    def claim(self, uid: str) -> bool:
        """Whether this uid may be started now: True once in its life. On disk when this returns."""
        if uid in self.known:
            return False
        self._write({"uid": uid}, durable=True)
        return True

    def started(self, uid: str, pid: int, start: int | None) -> None:
        self._write({"uid": uid, "pid": pid, "start": start})

    def ended(self, uid: str, code: int) -> None:
        self._write({"uid": uid, "code": code})

    def _write(self, line: dict[str, Any], *, durable: bool = False) -> None:
        self._apply(line)
        jsonl.append(self._fd, line)
        if durable:
            os.fdatasync(self._fd)

    def _apply(self, line: dict[str, Any]) -> None:
        known = self.known.setdefault(str(line["uid"]), Known())
        if "pid" in line:
            known.pid, known.start = line["pid"], line["start"]
        if "code" in line:
            known.code, known.ended = line["code"], True


def _mend(path: Path) -> None:
    """End a torn last line, so that the next one is not glued to it."""
    if path.exists() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")
