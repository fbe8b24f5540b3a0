"""Keeps the records of a real run as a test: `python -m tests.checkers.trim RUN_DIR` writes an archive to real/.

Only what the judge reads is kept: no specs of pods, no tokens, no paths of the machine it ran on.
"""

import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from chaos import jsonl
from chaos.errors import ChaosError

REAL = Path(__file__).with_name("real")
RUN_FIELDS = ("schema", "scenario", "profile", "cluster", "kubernetes", "seed", "started_wall", "started_mono", "lanes")
OPS = {"phase", "fault", "submit", "probe", "create", "agent", "row", "clear", "trouble", "leader_term"}
EVENT_FIELDS = ("auditID", "stage", "verb", "requestURI", "userAgent", "requestReceivedTimestamp", "stageTimestamp")


def trim(directory: Path) -> Path:
    """Raises ChaosError for a directory that holds no run."""
    try:
        run = orjson.loads((directory / "run.json").read_bytes())
    except OSError as error:
        raise ChaosError(f"{directory} holds no run: {error.strerror}") from error
    numbers = {name: value for name, value in run["settings"].items() if isinstance(value, int | float)}
    kept = {name: run[name] for name in RUN_FIELDS} | {"budgets": run["budgets"], "settings": numbers}
    archive = REAL / f"{run['scenario']}-{run['profile']}-{run['seed']}.tar.xz"
    REAL.mkdir(exist_ok=True)
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        _add(tar, "run.json", orjson.dumps(kept, option=orjson.OPT_INDENT_2))
        for name, lines in (
            ("history.jsonl", (e for e in jsonl.read(directory / "history.jsonl") if e.get("op") in OPS)),
            ("ledger.jsonl", jsonl.read(directory / "ledger.jsonl")),
            ("audit.jsonl", map(_audit, _creates(directory / "audit.jsonl"))),
        ):
            _add(tar, name, b"".join(map(jsonl.encode, lines)))
    return archive


def _creates(path: Path) -> Iterator[dict[str, Any]]:
    for event in jsonl.read(path):
        if event.get("verb") == "create" and (event.get("objectRef") or {}).get("resource") == "pods":
            yield event


def _audit(event: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {name: event[name] for name in EVENT_FIELDS if name in event}
    kept["objectRef"] = event["objectRef"]
    kept["responseStatus"] = event.get("responseStatus")
    metadata = (event.get("requestObject") or {}).get("metadata")
    if metadata:
        kept["requestObject"] = {"metadata": {n: metadata[n] for n in ("name", "labels") if n in metadata}}
    return kept


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


if __name__ == "__main__":
    print(trim(Path(sys.argv[1])))
