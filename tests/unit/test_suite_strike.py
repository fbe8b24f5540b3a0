"""A stroke: what is done in which order, what is on disk meanwhile, and that everything is healed on every way out."""

import asyncio
import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos import faults, run
from chaos.errors import ChaosError
from chaos.faults import Evidence, Fault, Ground, UndoStep
from chaos.scenarios import Stroke
from chaos.stage import Stage
from chaos.undo import FILE, Undos


class Told:
    """Stands in for the stage: notes what a stroke does to it. `history` is what was written there."""

    def __init__(self, directory: Path) -> None:
        self.happened: list[str] = []
        self.undos = Undos(directory)
        self.run = SimpleNamespace(
            undos=self.undos,
            phase=lambda name, length_s=None: self.happened.append(f"phase {name}"),
            history=SimpleNamespace(write=lambda *_, **__: 0.0),
            progress=SimpleNamespace(note=lambda _: None),
        )
        self.probe = SimpleNamespace(closely=contextlib.nullcontext)
        self.ground = None

    def cue(self, segment: str) -> None:
        self.happened.append(f"cue {segment}")

    async def pass_time(self, seconds: float) -> None:
        self.happened.append(f"hold {seconds:g}")


def make(name: str, told: Told, broken: str) -> Fault:
    """A fault that notes its steps; the step `broken` ("name step") fails."""

    class Noted(Fault):
        def undo(self, ground: Ground) -> list[UndoStep]:
            return [{"do": "undo", "of": self.name}]

        async def _do(self, step: str) -> Evidence:
            told.happened.append(f"{self.name} {step}")
            await asyncio.sleep(0)
            if broken == f"{self.name} {step}":
                raise ChaosError(f"{self.name} could not {step}")
            return {"open": sorted(json.loads((told.undos.directory / FILE).read_text()))} if told.undos.open else {}

        async def inject(self, ground: Ground) -> Evidence:
            return await self._do("inject")

        async def confirm_fired(self, ground: Ground) -> Evidence:
            return await self._do("fired")

        async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
            return await self._do("heal")

        async def confirm_healed(self, ground: Ground, deadline_s: float) -> Evidence:
            return await self._do("healed")

    fault = Noted()
    fault.name = name
    return fault


async def strike(stroke: Stroke, directory: Path, monkeypatch: pytest.MonkeyPatch, broken: str = "") -> list[str]:
    told = Told(directory)
    monkeypatch.setattr(faults, "make", lambda name: make(name, told, broken))
    try:
        await run.strike(cast(Stage, cast(Any, told)), stroke)
    except ChaosError as error:
        told.happened.append(str(error))
    assert not (directory / FILE).exists() or broken.endswith("heal"), "what was healed is no longer open"
    return [one for one in told.happened if not one.startswith("phase")]


async def test_one_fault_is_healed_before_anything_else_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stroke = Stroke("a", hold_s=3, load_fired="outage", load_healed="recovery")
    assert await strike(stroke, tmp_path, monkeypatch) == [
        *("a inject", "a fired", "cue outage", "hold 3", "a heal", "a healed", "cue recovery")
    ]


TWO = Stroke("a", hold_s=1, load_fired="outage", load_healed="recovery", then=Stroke("b", hold_s=2))


async def test_a_fault_that_takes_over_is_injected_before_the_one_before_it_is_healed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert await strike(TWO, tmp_path, monkeypatch) == [
        *("a inject", "a fired", "cue outage", "hold 1"),
        *("b inject", "a heal", "b fired", "hold 2", "b heal"),
        *("b healed", "a healed", "cue recovery"),
    ]


@pytest.mark.parametrize(
    ("broken", "healed"),
    [
        ("a inject", ["a"]),
        ("a fired", ["a"]),
        ("b inject", ["a", "b"]),
        ("b fired", ["a", "b"]),
        ("a heal", ["a", "b"]),
    ],
)
async def test_everything_that_was_broken_is_healed_on_every_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, healed: list[str]
):
    happened = await strike(TWO, tmp_path, monkeypatch, broken)
    fault, step = broken.split()
    assert happened[-1] == f"{fault} could not {step}"
    assert [one for one in happened if one.endswith(" heal") and "could" not in one] == [
        f"{name} heal" for name in healed
    ]
    assert not [one for one in happened if one.endswith("healed")], "a run that went wrong claims no recovery"
