"""The plots of the tasks as a whole over the run clock: rates, oldest due age, latency."""

from collections.abc import Mapping

from chaos.report import human
from chaos.report.data import LaneData, RunData
from chaos.report.figure import (
    Figure,
    Json,
    Key,
    axis_name,
    base_layout,
    clock_axis,
    ms,
    shade,
    stacked,
    text,
    upright,
    value_axis,
)
from chaos.report.rows import Outcome

LANE_COLOURS = ("--lane-1", "--lane-2", "--lane-4", "--lane-5")
MARKS = {
    Outcome.FIRST: ("--placed", "circle"),
    Outcome.RODE_OUT: ("--rode", "diamond"),
    Outcome.PUT_OFF: ("--pressure", "triangle"),
    Outcome.FAILED: ("--refused", "x"),
}
PLOTLY_SYMBOLS = {"circle": "circle", "diamond": "diamond", "triangle": "triangle-up", "x": "x", "square": "square"}


def title_of(lane: LaneData) -> str:
    """`buffered – 2 replicas`, `control – the rule from before`."""
    info = lane.lane.info
    if lane.control:
        return f"{lane.name} – the rule from before"
    return f"{lane.name} – {human.plural(info.replicas, 'replica')}"


def colours_of(data: RunData) -> Mapping[str, str]:
    """Each lane's colour; the control's is always the same."""
    plain = iter(LANE_COLOURS * (1 + len(data.lanes) // len(LANE_COLOURS)))
    return {name: "--lane-control" if lane.control else next(plain) for name, lane in data.lanes.items()}


def marks_of(data: RunData) -> Mapping[str, str]:
    """Each lane's kind of line: where two lie on each other, the lower one shows through the gaps."""
    plain = iter(("line", "longdash") * (1 + len(data.lanes)))
    return {name: "dot" if lane.control else next(plain) for name, lane in data.lanes.items()}


def rates(data: RunData) -> Figure:
    """Tasks per bin: due, placed, begun, refused; one panel a lane."""
    lanes = list(data.lanes.values())
    most = max((max([*lane.due, *lane.placed, *lane.began, *lane.refused], default=0) for lane in lanes), default=0)
    height, layout = stacked(data.span, [title_of(lane) for lane in lanes], 120, {"range": [0, max(1, most) * 1.05]})
    shade(layout, data.bands)
    per = f"in {human.bound(data.bins.width)}"
    figure = Figure("rates", _rates_in_words(data, most, per), height, layout=layout)
    x = [ms(t) for t in data.bins.starts]
    kinds: tuple[tuple[str, str, str, str, Json], ...] = (
        ("due", "tasks that came due", "--due", "area", {"fill": "tozeroy", "fillcolor": "--due-fill"}),
        ("refused", _refusals(lanes), "--refused", "dash", {}),
        ("placed", "first pods that the API accepted (audit log)", "--placed", "line", {}),
        ("running", "user code that began to run (ledger)", "--ran", "dot", {}),
    )
    for kind, explain, colour, mark, more in kinds:
        numbers = []
        for panel, lane in enumerate(lanes):
            values = {"due": lane.due, "placed": lane.placed, "running": lane.began, "refused": lane.refused}[kind]
            numbers.append(
                figure.add(
                    type="scatter",
                    mode="lines",
                    name=f"{kind}, {text(lane.name)}",
                    x=x,
                    y=values,
                    yaxis=axis_name("y", panel),
                    line={"shape": "hv", "color": colour, "width": 1.8, "dash": _dash(mark)},
                    hovertemplate=f"%{{y}} {kind} {per}<extra>{text(lane.name)}, from %{{x}}</extra>",
                    **more,
                )
            )
        figure.keys.append(Key(kind, explain, colour, mark, tuple(numbers)))
    return figure


def _refusals(lanes: list[LaneData]) -> str:
    if any(lane.causes for lane in lanes):
        return "offers that were not placed (the dispatcher’s claim)"
    return "creates that the apiserver refused (audit log; no dispatcher tells more)"


def _rates_in_words(data: RunData, most: int, per: str) -> str:
    each = "; ".join(
        f"{lane.name}: {human.count(sum(lane.due))} due, {human.count(sum(lane.placed))} placed, "
        f"{human.count(sum(lane.began))} began to run, {human.count(sum(lane.refused))} offers refused"
        for lane in data.lanes.values()
    )
    return f"Counts {per}, at most {human.count(most)}. {each}."


def oldest_due(data: RunData, stable: Mapping[str, float]) -> Figure:
    """How long the oldest unanswered task had been due, with the budget and each lane's stable time (run clock)."""
    budget = data.records.run.recovery_budget_s
    top = max([budget, *(age for lane in data.lanes.values() for _, age in lane.oldest)]) * 1.08
    layout = base_layout(330, xaxis=clock_axis(data.span), yaxis=value_axis(range=[0, top], ticksuffix=" s", nticks=7))
    shade(layout, data.bands)
    figure = Figure("oldest", _oldest_in_words(data, stable), 330, layout=layout)
    colours, marks = colours_of(data), marks_of(data)
    for name, lane in data.lanes.items():
        mark = marks[name]
        number = figure.add(
            type="scatter",
            mode="lines",
            name=text(name),
            x=[ms(t) for t, _ in lane.oldest],
            y=[age for _, age in lane.oldest],
            line={"color": colours[name], "width": 2, "dash": _dash(mark)},
            hovertemplate=f"%{{y:.1f}} s at %{{x}}<extra>{text(name)}</extra>",
        )
        explain = (
            "the rule from before: a task leaves by failing" if lane.control else "the oldest task without an answer"
        )
        figure.keys.append(Key(name, explain, colours[name], mark, (number,)))
    marked = {name: t for name, t in stable.items() if name in data.lanes}
    if marked:
        number = figure.add(
            type="scatter",
            mode="markers",
            name="stable",
            x=[ms(t) for t in marked.values()],
            y=[budget] * len(marked),
            text=[text(name) for name in marked],
            marker={
                "symbol": "star",
                "size": 13,
                "color": [colours[n] for n in marked],
                "line": {"width": 1, "color": "--card"},
            },
            hovertemplate="stable from %{x}<extra>%{text}</extra>",
        )
        when = human.listed([f"{name} {human.clock(t)}" for name, t in marked.items()])
        figure.keys.append(
            Key("stable", f"from here on no task waits longer than the budget: {when}", "--text", "star", (number,))
        )
    _horizontal(layout, budget, f"{human.bound(budget)} budget")
    back = _back(data)
    if back is not None:
        upright(layout, back, "API back", "--ran")
    return figure


def _oldest_in_words(data: RunData, stable: Mapping[str, float]) -> str:
    told = []
    for lane in data.lanes.values():
        t, age = max(lane.oldest, key=lambda point: point[1], default=(0.0, 0.0))
        calm = f"; stable from {human.clock(stable[lane.name])}" if lane.name in stable else ""
        told.append(f"{lane.name}: at most {human.seconds(age)} (at {human.clock(t)}){calm}")
    return f"{'. '.join(told)}."


def _back(data: RunData) -> float | None:
    """When the API was back for the last lane that decides."""
    found = [lane.healed for lane in data.deciding or list(data.lanes.values()) if lane.healed is not None]
    return max(found, default=None)


def _horizontal(layout: dict[str, object], y: float, label: str) -> None:
    shapes, annotations = layout["shapes"], layout["annotations"]
    assert isinstance(shapes, list)
    assert isinstance(annotations, list)
    line = {"width": 1.5, "color": "--refused", "dash": "dash"}
    shapes.append({"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line})
    annotations.append(
        {
            "text": text(label),
            "xref": "paper",
            "yref": "y",
            "x": 0,
            "y": y,
            "xanchor": "left",
            "xshift": 4,
            "yanchor": "bottom",
            "showarrow": False,
            "font": {"size": 11, "color": "--refused"},
        }
    )


def latency(data: RunData) -> Figure:
    """Seconds from due to placed, by the time a task was due; between the slanted lines lies the promise."""
    lanes, budget = list(data.lanes.values()), data.records.run.recovery_budget_s
    most = max((p.waited for lane in lanes for some in lane.latency.values() for p in some), default=1.0)
    if data.outage_s is not None:
        most = max(most, data.outage_s + budget)
    axis = {"range": [-0.03 * most, max(most, 1.0) * 1.08], "ticksuffix": " s"}
    height, layout = stacked(data.span, [title_of(lane) for lane in lanes], 150, axis)
    shade(layout, data.bands)
    figure = Figure("latency", _latency_in_words(data), height, layout=layout)
    for outcome, (colour, mark) in MARKS.items():
        numbers = []
        for panel, lane in enumerate(lanes):
            points = lane.latency.get(outcome, [])
            if points:
                numbers.append(
                    figure.add(
                        type="scatter",
                        mode="markers",
                        name=f"{outcome}, {text(lane.name)}",
                        x=[ms(point.due) for point in points],
                        y=[point.waited for point in points],
                        text=[_row_label(point.row, point.stands_for) for point in points],
                        yaxis=axis_name("y", panel),
                        marker={"symbol": PLOTLY_SYMBOLS[mark], "size": 7, "color": colour, "opacity": 0.85},
                        hovertemplate=f"%{{text}}: due at %{{x}}, {outcome} after %{{y:.1f}} s"
                        f"<extra>{text(lane.name)}</extra>",
                    )
                )
        if numbers:
            figure.keys.append(Key(outcome, _MEANING[outcome], colour, mark, tuple(numbers)))
    slopes = [n for panel, lane in enumerate(lanes) for n in _promise(figure, data, lane, panel, budget)]
    if slopes:
        explain = (
            f"a task on the lower line was placed when the API came back, on the upper {human.bound(budget)} later"
        )
        figure.keys.append(Key("the promise", explain, "--text", "dot", tuple(slopes)))
    return figure


_MEANING = {
    Outcome.FIRST: "the API took the pod at once",
    Outcome.RODE_OUT: "the API could not be reached; the row was held and offered again",
    Outcome.PUT_OFF: "the API answered and refused; the row came back later",
    Outcome.FAILED: "given up; the height is the time until then",
}


def _row_label(row: int, stands_for: int) -> str:
    return f"row {row}" if stands_for == 1 else f"row {row} (one of about {stands_for} like it)"


def _promise(figure: Figure, data: RunData, lane: LaneData, panel: int, budget: float) -> list[int]:
    if lane.healed is None or data.outage is None or data.outage.fired_at is None:
        return []
    begin, back = data.outage.fired_at, lane.healed
    numbers = []
    for after in (0.0, budget):
        numbers.append(
            figure.add(
                type="scatter",
                mode="lines",
                x=[ms(begin), ms(back + after)],
                y=[back + after - begin, 0],
                yaxis=axis_name("y", panel),
                hoverinfo="skip",
                line={"color": "--muted", "width": 1.2, "dash": "dot"},
            )
        )
    return numbers


def _latency_in_words(data: RunData) -> str:
    told = []
    for lane in data.lanes.values():
        counts = [f"{human.count(number)} {outcome}" for outcome, number in lane.outcomes.items()]
        told.append(f"{lane.name}: {human.listed(counts) or 'no task was handed in'}")
    return f"{'; '.join(told)}."


def _dash(mark: str) -> str:
    return {"line": "solid", "area": "solid", "dash": "dash", "longdash": "longdash", "dot": "dot"}[mark]
