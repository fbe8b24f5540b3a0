"""What a person sees while a run goes on: a live display in a terminal, plain lines anywhere else.

Phase and time left, and for each lane: due and waiting, holding, placed, succeeded, failed. The figures are what the
dispatchers say; the verdict comes later and from elsewhere.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from chaos.sampler import Figures

PLAIN_EVERY_S = 15.0
REFRESH_HZ = 2.0
"""A terminal needs no more, and the machine has other work."""


@dataclass
class Progress:
    """The display. `phase` begins a phase, `note` says one line that stays, `update` takes the lanes' figures."""

    console: Console
    title: str
    clock: Callable[[], float]
    """The run clock, seconds."""
    phase_name: str = "start"
    phase_ends: float | None = None
    lanes: dict[str, Figures] = field(default_factory=dict)
    _live: Live | None = None
    _said_at: float = 0.0

    @contextmanager
    def showing(self) -> Iterator["Progress"]:
        """Show it until the block is left."""
        if not self.console.is_terminal:
            self._say(self.title)
            yield self
            return
        with Live(get_renderable=self.render, console=self.console, refresh_per_second=REFRESH_HZ) as live:
            self._live = live
            try:
                yield self
            finally:
                self._live = None

    def phase(self, name: str, length_s: float | None = None) -> None:
        """Begin a phase that should take `length_s` seconds, if that is known."""
        goes_on, self.phase_name = name == self.phase_name, name
        self.phase_ends = None if length_s is None else self.clock() + length_s
        if self._live is None and not goes_on:
            self._say(name + (f" ({length_s:.0f} s)" if length_s else ""))

    def note(self, line: str) -> None:
        """One line that stays: what was seen, what is being built."""
        if self._live is None:
            self._say(line)
        else:
            self.console.print(Text(f"{stamp(self.clock())}  {line}", style="dim"))

    def update(self, lanes: dict[str, Figures]) -> None:
        self.lanes = dict(lanes)
        if self._live is None and time.monotonic() - self._said_at >= PLAIN_EVERY_S:
            self._say(f"{self.phase_name}{self._left()}: {'; '.join(map(self._plain, self.lanes))}")

    def render(self) -> RenderableType:
        head = Text.assemble(
            (stamp(self.clock()), "bold"),
            "  ",
            (self.phase_name, "bold cyan"),
            self._left(),
            "   ",
            (self.title, "dim"),
        )
        if not self.lanes:
            return head
        table = Table(box=None, pad_edge=False)
        table.add_column("lane", style="bold")
        for name in ("waiting", "holding", "oldest due", "placed", "succeeded", "failed"):
            table.add_column(name, justify="right")
        for lane, seen in self.lanes.items():
            table.add_row(
                lane,
                str(seen.states["scheduled"]),
                Text(str(seen.holding), style="yellow" if seen.holding else ""),
                f"{seen.oldest_due_age_s:.0f} s",
                str(seen.placed),
                str(seen.states["success"]),
                Text(str(seen.states["failed"]), style="red" if seen.states["failed"] else ""),
            )
        return Group(head, table)

    def _left(self) -> str:
        if self.phase_ends is None:
            return ""
        left = self.phase_ends - self.clock()
        return f", {stamp(left)} left" if left > 0 else ", overtime"

    def _plain(self, lane: str) -> str:
        seen = self.lanes[lane]
        waiting, failed = seen.states["scheduled"], seen.states["failed"]
        return f"{lane} {waiting} waiting {seen.holding} holding {seen.placed} placed {failed} failed"

    def _say(self, line: str) -> None:
        self._said_at = time.monotonic()
        self.console.print(f"[{stamp(self.clock())}] {line}", highlight=False, markup=False, soft_wrap=True)


def stamp(seconds: float) -> str:
    """Minutes and seconds."""
    whole = max(0, round(seconds))
    return f"{whole // 60:02d}:{whole % 60:02d}"
