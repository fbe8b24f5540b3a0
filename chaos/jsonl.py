"""JSON lines as the witnesses write them: appended whole, read one by one, damage counted and never guessed
at.

A process may die inside a write, so a file's last line may be torn: it is dropped and said so. A line that is
damaged *before* the end is lost evidence, and a checker that claims "nothing of the kind happened" may not
say so then (`Damage.whole`).
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson


@dataclass(slots=True)
class Damage:
    """What could not be read of one file. Complete only after the file has been read to its end."""

    missing: bool = False
    """There is no such file."""
    lines: int = 0
    """Lines that were read well."""
    torn: bool = False
    """The last line is cut off (its writer died, or is still writing)."""
    damaged: int = 0
    """Lines before the last that are not JSON objects."""
    first_damaged_line: int | None = None
    """Number of the first of them, counted from 1."""

    @property
    def whole(self) -> bool:
        return not (self.missing or self.torn or self.damaged)

    @property
    def complete(self) -> bool:
        """It spoke, and all of it was read: what is not in it did not happen before its eyes."""
        return self.whole and not self.silent

    @property
    def silent(self) -> bool:
        """The witness said nothing at all: no file, or nothing in it."""
        return self.lines == 0


def read(path: Path, damage: Damage | None = None) -> Iterator[dict[str, Any]]:
    """Yield the objects of `path`, streaming. What cannot be read is told to `damage`; a missing file is
    empty.

    Raises OSError for a file that is there and cannot be read.
    """
    damage = damage if damage is not None else Damage()
    try:
        file = path.open("rb")
    except FileNotFoundError:
        damage.missing = True
        return
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError:
                value = None
            if isinstance(value, dict):
                damage.lines += 1
                yield value
            elif not line.endswith(b"\n"):
                damage.torn = True
            else:
                damage.damaged += 1
                damage.first_damaged_line = damage.first_damaged_line or number


def encode(value: dict[str, Any]) -> bytes:
    """One line with its newline. Paths and the like are written as their text."""
    return orjson.dumps(value, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


def open_append(path: Path) -> int:
    """A descriptor whose every write lands whole at the end of the file, whoever else writes to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def append(fd: int, value: dict[str, Any]) -> None:
    """Write one object with ONE write, so that lines of several processes never mix.

    Raises OSError when the disk took only a part: the record would be damaged, and its writer must know.
    """
    line = encode(value)
    written = os.write(fd, line)
    if written != len(line):
        raise OSError(f"only {written} of {len(line)} bytes of a record were written; is the disk full?")
