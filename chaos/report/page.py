"""Puts records, result, plots and text together into one file that needs nothing else.

Plotly, styles and data are inlined, and a content security policy forbids the page every request: it opens offline,
from a mail or a CI artifact, and tells nobody that it was opened.
"""

import csv
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import orjson
from markupsafe import Markup

from chaos.errors import ChaosError
from chaos.events import Sample
from chaos.records import Records
from chaos.report import availability, human, ladder, lanes_table, missing, plots, plots_rows, plots_world, story
from chaos.report.data import LaneData, RunData, offending_rows
from chaos.report.figure import Figure
from chaos.report.rows import Moment, RowFacts, shortened, story_of, worst
from chaos.report.verdicts import Offence, Verdicts

HERE = Path(__file__).parent
WORST = 50
MOST_OFFENCES = 30
AFTERWARDS = ("collect", "check", "report")
"""Phases that every run comes to, however early it broke off."""


def write_report(run_dir: Path | str) -> Path:
    """Write run_dir/report.html from what is there, whole or not at all; returns its path.

    Raises ChaosError where the directory does not exist or cannot be written to; never for what a record holds.
    """
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise ChaosError(f"{run_dir} is no directory of a run")
    path, temporary = run_dir / "report.html", run_dir / ".report.html.tmp"
    with _no_collector():
        page = render(Context.of(run_dir))
    try:
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ChaosError(f"the report cannot be written to {path}: {error.strerror}") from error
    return path


@contextmanager
def _no_collector() -> Iterator[None]:
    """Records are millions of small objects without a cycle: looking for one takes half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(slots=True, frozen=True)
class Case:
    """An offence with its row's story."""

    offence: Offence
    moments: list[Moment]
    left_out: int


@dataclass(slots=True)
class Context:
    """What the template is given. `data` is None where not even run.json can be read."""

    directory: Path
    data: RunData | None
    verdicts: Verdicts
    missing: list[str]
    """What is not on record, in words."""
    figures: dict[str, Figure] = field(default_factory=dict)
    ladders: list[ladder.Ladder] = field(default_factory=list)
    lanes: list[lanes_table.Line] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    control_cases: list[Case] = field(default_factory=list)

    @classmethod
    def of(cls, run_dir: Path) -> "Context":
        try:
            records = Records.load(run_dir)
        except (ChaosError, OSError) as error:
            return cls(run_dir, None, Verdicts.read(run_dir / "result.json", frozenset()), [str(error)])
        control = frozenset(name for name, lane in records.lanes.items() if not lane.info.decides)
        verdicts = Verdicts.read(run_dir / "result.json", control)
        data = RunData.of(records)
        context = cls(run_dir, data, verdicts, [])
        samples = context.samples()
        context.missing += missing.what(records.damage, verdicts, samples)
        context.ladders = ladder.ladders_of(data)
        context.lanes = lanes_table.lines_of(data, verdicts)
        context.cases = [_case(data, one) for one in verdicts.deciding_offences[:MOST_OFFENCES]]
        control_offences = [one for one in verdicts.offences if not one.decides][:MOST_OFFENCES]
        context.control_cases = [_case(data, one) for one in control_offences]
        context.draw(data, samples)
        return context

    def samples(self) -> list[Sample]:
        """samples.csv; what of it cannot be read is told as missing."""
        assert self.data is not None
        try:
            return self.data.records.samples()
        except (OSError, ValueError, csv.Error) as error:
            self.missing.append(f"samples.csv cannot be read ({error})")
            return []

    def draw(self, data: RunData, samples: list[Sample]) -> None:
        """All pictures there are data for. One that cannot be drawn is told as missing: the others must still come."""
        places = offending_rows([(one.lane, one.row) for one in self.verdicts.offences])
        first: dict[tuple[str, int], Offence] = {}
        for one in self.verdicts.offences:
            if one.row is not None:
                first.setdefault((one.lane, one.row), one)

        def rows_of(lanes: list[LaneData]) -> list[RowFacts]:
            return worst((fact for lane in lanes for fact in lane.facts.values()), places, WORST)

        pictures: dict[str, Callable[[], Figure | None]] = {
            "rates": lambda: plots.rates(data),
            "oldest": lambda: plots.oldest_due(data, stable_times(data, self.verdicts)),
            "latency": lambda: plots.latency(data),
            "causes": lambda: plots_world.causes(data),
            "availability": lambda: plots_world.availability(data, availability.strips_of(data.records, samples)),
            "ladder": lambda: plots_rows.ladder(self.ladders),
            "timeline": lambda: plots_rows.timeline(data, "timeline", rows_of(data.deciding), first),
            "timeline-control": lambda: plots_rows.timeline(data, "timeline-control", rows_of(data.controls), first),
        }
        for name, make in pictures.items():
            try:
                figure = make()
            except Exception as error:
                self.missing.append(f"the picture “{name}” could not be drawn, a bug in the report: {error!r}")
                continue
            if figure is not None:
                self.figures[name] = figure

    @property
    def headline(self) -> str:
        return story.headline(self.data, self.verdicts)

    @property
    def happened(self) -> list[str]:
        return story.what_happened(self.data, self.verdicts) if self.data is not None else []

    @property
    def first_offence(self) -> Offence | None:
        return next(iter(self.verdicts.deciding_offences), None)

    @property
    def startup_403s(self) -> int:
        return sum(len(lane.startup_403s) for lane in self.data.lanes.values()) if self.data else 0

    @property
    def other_403s(self) -> int:
        return sum(len(lane.other_403s) for lane in self.data.lanes.values()) if self.data else 0

    @property
    def started(self) -> str:
        if self.data is None:
            return human.NOTHING
        return datetime.fromtimestamp(self.data.records.run.started_wall, UTC).strftime("%Y-%m-%d %H:%M UTC")

    @property
    def versions(self) -> list[tuple[str, str]]:
        """What ran, from run.json: known keys first, then whatever else is there and short."""
        assert self.data is not None
        run = self.data.records.run
        found = [("Kubernetes", run.kubernetes), ("cluster", run.cluster)]
        for name in ("versions", "machine"):
            extra = run.raw.get(name)
            if isinstance(extra, dict):
                found += [(human.words(key), str(value)) for key, value in extra.items()]
        return [(name, value) for name, value in found if value]

    @property
    def settings(self) -> list[tuple[str, str]]:
        assert self.data is not None
        return [(name, _setting(name, value)) for name, value in sorted(self.data.records.run.settings.items())]

    @property
    def reached(self) -> str | None:
        """The last phase of a run that was cut short; None for a run that came as far as its drain."""
        phases = [phase.name for phase in self.data.records.phases] if self.data is not None else []
        if not phases or "drain" in phases:
            return None
        told = [name for name in phases if name not in AFTERWARDS]
        return told[-1] if told else phases[-1]


def _setting(name: str, value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return human.bound(value) if name.endswith("_s") else human.number(value)
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def stable_times(data: RunData, verdicts: Verdicts) -> Mapping[str, float]:
    """When each lane was stable after the main outage, on the run clock: the checker counts from the API's return."""
    found = {}
    for name, lane in data.lanes.items():
        after = verdicts.figure(name, "recovery", "stable_at_s")
        each = verdicts.figure(name, "recovery", "faults")
        if isinstance(each, dict) and data.outage is not None:
            of_outage = each.get(data.outage.name)
            after = of_outage.get("stable_at_s") if isinstance(of_outage, dict) else None
        if isinstance(after, int | float) and lane.healed is not None:
            found[name] = lane.healed + after
    return found


def _case(data: RunData, offence: Offence) -> Case:
    lane = data.records.lanes.get(offence.lane)
    if lane is None or offence.row is None:
        return Case(offence, [], 0)
    moments, left_out = shortened(story_of(lane, offence.row, (offence.t, offence.what)))
    return Case(offence, moments, left_out)


def render(context: Context) -> str:
    """The page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "seconds": human.seconds,
        "bound": human.bound,
        "clock": human.clock,
        "count": human.count,
        "plural": human.plural,
        "words": human.words,
        "shortened": human.shortened,
        "between": _between,
        "figure": lambda item: human.figure(item[0], item[1]),
    }
    return environment.get_template("template.html.j2").render(
        page=context,
        style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
        script=Markup((HERE / "report.js").read_text(encoding="utf-8")),
        plotly=Markup(plotly_js()),
        plots=Markup(inline_json([figure.json for figure in context.figures.values()])),
    )


def _between(times: list[float]) -> str:
    begin, end = human.clock(min(times)), human.clock(max(times))
    return f"at {begin}" if begin == end else f"from {begin} to {end}"


@cache
def plotly_js() -> str:
    """Plotly's script, safe to stand inside a script element."""
    from plotly.offline import get_plotlyjs  # slow to import, and only a report needs it

    return str(get_plotlyjs()).replace("</script", "<\\/script")


def inline_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever the records hold."""
    return orjson.dumps(value).decode().replace("<", "\\u003c")
