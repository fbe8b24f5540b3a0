"""The plots of what surrounds the tasks: why offers were not placed, and what was there when."""

from chaos.report import human
from chaos.report.availability import Strip
from chaos.report.data import RunData
from chaos.report.figure import (
    Figure,
    Json,
    Key,
    axis_name,
    base_layout,
    category_axis,
    clock_axis,
    ms,
    ms_long,
    shade,
    stacked,
    text,
)

CAUSE_COLOURS = ("--cause-1", "--cause-2", "--cause-3", "--cause-4", "--cause-5", "--cause-6", "--cause-7")
PATTERNS = ("", "/", "x", "-", ".", "|", "\\")
"""Beside its colour each cause has its hatching: nobody has to tell two by colour alone."""


def causes(data: RunData) -> Figure:
    """Why offers were not placed, as each lane claims; and below what the apiserver answered, as evidence."""
    lanes = list(data.lanes.values())
    titles = [f"{lane.name} says (claim)" for lane in lanes] + ["the apiserver answered, all lanes (audit log)"]
    height, layout = stacked(data.span, titles, 110)
    layout |= {"barmode": "stack", "bargap": 0}
    shade(layout, data.bands)
    figure = Figure("causes", _causes_in_words(data), height, layout=layout)
    names = list(dict.fromkeys(cause for lane in lanes for cause in lane.causes))
    names.sort(key=lambda name: (name == "other", -sum(sum(lane.causes.get(name, ())) for lane in lanes)))
    for number, name in enumerate(names):
        style = _style("--muted" if name == "other" else CAUSE_COLOURS[number % len(CAUSE_COLOURS)], number)
        traces = [
            _bars(figure, data, name, lane.causes[name], panel, style)
            for panel, lane in enumerate(lanes)
            if name in lane.causes
        ]
        figure.keys.append(Key(name, "claim", style["color"], "bar", tuple(traces)))
    for number, (code, counts) in enumerate(sorted(data.codes.items())):
        colour = "--placed" if code == "201" else CAUSE_COLOURS[(number + 1) % len(CAUSE_COLOURS)]
        style = _style(colour, 0 if code == "201" else number + 2)
        trace = _bars(figure, data, code, counts, len(lanes), style)
        figure.keys.append(Key(f"{code}{' Created' if code == '201' else ''}", "audit log", colour, "bar", (trace,)))
    return figure


def _style(colour: str, number: int) -> Json:
    pattern: Json = {
        "shape": PATTERNS[number % len(PATTERNS)],
        "fillmode": "overlay",
        "fgcolor": "--card",
        "size": 5,
        "solidity": 0.3,
    }
    return {"color": colour, "line": {"width": 0}, "pattern": pattern}


def _bars(figure: Figure, data: RunData, name: str, counts: list[int], panel: int, style: Json) -> int:
    width = data.bins.width
    return figure.add(
        type="bar",
        name=text(name),
        x=[ms(t + width / 2) for t in data.bins.starts],
        y=counts,
        width=ms_long(width),
        yaxis=axis_name("y", panel),
        marker=style,
        hovertemplate=f"%{{y}} × {text(name)}<extra>%{{x}}</extra>",
    )


def _causes_in_words(data: RunData) -> str:
    told = []
    for lane in data.lanes.values():
        most = sorted(lane.causes.items(), key=lambda item: -sum(item[1]))[:3]
        said = human.listed([f"{human.count(sum(counts))} × {cause}" for cause, counts in most])
        told.append(f"{lane.name} claims {said or 'that nothing was refused'}")
    codes = human.listed([f"{human.count(sum(counts))} × {code}" for code, counts in sorted(data.codes.items())])
    return f"{'; '.join(told)}. The audit log has {codes or 'no creates'}."


def availability(data: RunData, strips: list[Strip]) -> Figure | None:
    """What was there when, one strip each; a term of leadership is a block of its own. None without any strip."""
    if not strips:
        return None
    height = 30 * len(strips) + 80
    names = [text(strip.name) for strip in strips]
    layout = base_layout(
        height,
        barmode="overlay",
        bargap=0.35,
        xaxis=clock_axis(data.span),
        yaxis=category_axis(names),
    )
    shade(layout, data.bands)
    words = "; ".join(f"{strip.name}: {_away(strip)}" for strip in strips)
    figure = Figure("availability", f"{words}.", height, layout=layout)
    kinds = {
        "served": ("served", "asked and answered", "--placed", ""),
        "refused": ("not served", "asked and refused, or no answer", "--refused", "/"),
        "leader": ("a leader", "a replica holds the term that is written on it", "--ran", ""),
        "no leader": ("no leader", "nobody dispatches", "--refused", "x"),
    }
    for kind, (label, explain, colour, pattern) in kinds.items():
        pairs = [
            (strip, state)
            for strip in strips
            for state in strip.states
            if state.state == kind or (kind == "leader" and state.state.startswith("term"))
        ]
        if not pairs:
            continue
        number = figure.add(
            type="bar",
            orientation="h",
            name=label,
            y=[text(strip.name) for strip, _ in pairs],
            base=[ms(max(state.begin, data.span.begin)) for _, state in pairs],
            x=[ms_long(state.end - max(state.begin, data.span.begin)) for _, state in pairs],
            text=[state.state if kind == "leader" else "" for _, state in pairs],
            textposition="inside",
            insidetextanchor="middle",
            insidetextfont={"color": "--card", "size": 11},
            customdata=[
                [human.clock(s.begin), human.clock(s.end), text(s.why or s.state), strip.witness] for strip, s in pairs
            ],
            marker={
                "color": colour,
                "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "--card", "size": 7, "solidity": 0.25},
                "line": {"width": 1.5, "color": "--card"},
            },
            hovertemplate="%{customdata[2]}, %{customdata[0]} to %{customdata[1]}<extra>%{customdata[3]}</extra>",
        )
        figure.keys.append(Key(label, explain, colour, "bar", (number,)))
    return figure


def _away(strip: Strip) -> str:
    return f"away for {human.seconds(strip.away_s)}" if strip.away_s else "never away"
