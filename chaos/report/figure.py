"""What all plots share: the time axis, fault bands, stacked panels, keys. Plain Plotly JSON, no colours.

A colour is the name of a custom property of style.css (`--placed`): the page puts in its value, so that light and
dark mode and the plots have one palette. The run clock goes onto Plotly's date axis as milliseconds, because only that
axis has good ticks in minutes and seconds at every zoom. Its zero is put into the year 2000: Plotly takes a small
number on that axis for a year.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.report.data import Band
from chaos.report.series import Span

Json = dict[str, Any]
ZERO_MS = 946_684_800_000
TOP, BOTTOM, GAP = 40, 34, 34
"""Pixels above and below the panels (letters of the bands; ticks) and between two of them (a panel's title)."""


@dataclass(slots=True, frozen=True)
class Key:
    """One entry of a legend: what the mark means, in a line. Pressing it hides the `traces` (their numbers)."""

    label: str
    explain: str
    colour: str
    mark: str
    """line, dash, longdash, dot, area, bar, circle, x, diamond, triangle, square or star."""
    traces: tuple[int, ...] = ()


@dataclass(slots=True)
class Figure:
    """One plot. `linked`: its x axis is the run clock and moves with that of the other plots."""

    name: str
    summary: str
    """What is to be seen, in words: the text alternative of the picture."""
    height: int
    data: list[Json] = field(default_factory=list)
    layout: Json = field(default_factory=dict)
    keys: list[Key] = field(default_factory=list)
    linked: bool = True

    def add(self, **trace: Any) -> int:
        """Add a trace; returns its number, for a key."""
        self.data.append(trace)
        return len(self.data) - 1

    @property
    def json(self) -> Json:
        return {"name": self.name, "data": self.data, "layout": self.layout, "linked": self.linked}


def text(value: object) -> str:
    """Text for Plotly, which takes some HTML: nothing of a cause or a key may be taken for a tag."""
    return html.escape(str(value), quote=False)


def ms(seconds: float) -> float:
    """A moment of the run clock (seconds) on Plotly's date axis."""
    return ZERO_MS + round(seconds * 1000, 1)


def ms_long(seconds: float) -> float:
    """A length of time (seconds) on that axis; never negative."""
    return round(max(0.0, seconds) * 1000, 1)


def clock_axis(span: Span, **more: Any) -> Json:
    ticks = "%-H:%M:%S" if span.end >= 3600 else "%-M:%S"
    return {
        "type": "date",
        "range": [ms(span.begin), ms(span.end)],
        "tickformat": ticks,
        "hoverformat": f"{ticks}.%L",
        "showgrid": True,
        "gridcolor": "--grid",
        "linecolor": "--axis",
        "zeroline": False,
        "automargin": False,
        "nticks": 9,
        **more,
    }


def value_axis(**more: Any) -> Json:
    return {
        "gridcolor": "--grid",
        "zeroline": False,
        "fixedrange": True,
        "rangemode": "tozero",
        "nticks": 5,
        "automargin": True,
        **more,
    }


def category_axis(names: Sequence[str], **more: Any) -> Json:
    """Names from top to bottom."""
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": list(reversed(names)),
        "gridcolor": "--grid",
        "automargin": True,
        "fixedrange": True,
        **more,
    }


def base_layout(height: int, **more: Any) -> Json:
    return {
        "height": height,
        "margin": {"l": 52, "r": 14, "t": TOP, "b": BOTTOM},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "--text"},
        "hoverlabel": {"bgcolor": "--card", "bordercolor": "--axis", "font": {"color": "--text"}, "align": "left"},
        "hovermode": "closest",
        "showlegend": False,
        "shapes": [],
        "annotations": [],
        **more,
    }


def panels(heights: Sequence[int]) -> tuple[int, list[tuple[float, float]]]:
    """The height of a figure of stacked panels in pixels, and each panel's domain (bottom, top) from top to bottom."""
    inner = sum(heights) + GAP * (len(heights) - 1)
    domains, at = [], float(inner)
    for height in heights:
        domains.append((max(0.0, (at - height) / inner), min(1.0, at / inner)))
        at -= height + GAP
    return inner + TOP + BOTTOM, domains


def stacked(span: Span, titles: Sequence[str], height: int, axis: Json | None = None) -> tuple[int, Json]:
    """The layout of panels that share the run clock: `yaxis`, `yaxis2` … from top to bottom, each with its title."""
    total, domains = panels([height] * len(titles))
    layout = base_layout(total, xaxis=clock_axis(span, anchor=axis_name("y", len(titles) - 1)))
    for number, (title, domain) in enumerate(zip(titles, domains, strict=True)):
        name = "yaxis" if number == 0 else f"yaxis{number + 1}"
        layout[name] = value_axis(domain=list(domain), anchor="x", **(axis or {}))
        layout["annotations"].append(
            {
                "text": f"<b>{text(title)}</b>",
                "xref": "paper",
                "yref": "paper",
                "x": 0,
                "y": domain[1],
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 12},
            }
        )
    return total, layout


def axis_name(letter: str, number: int) -> str:
    """Plotly's name of the n-th axis, counted from 0: y, y2, y3 …"""
    return letter if number == 0 else f"{letter}{number + 1}"


def shade(layout: Json, bands: Sequence[Band]) -> None:
    """Shade the faults over the whole height, darker where they were seen to bite, each with its letter above."""
    for band in bands:
        over_all = {"type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
        edge = {"width": 1, "color": "--band-edge"}
        span = {"x0": ms(band.begin), "x1": ms(band.end)}
        layout["shapes"].append(
            {**over_all, **span, "name": f"fault-{band.letter}", "fillcolor": "--band", "line": edge}
        )
        if band.fired_at is not None:
            span = {"x0": ms(band.fired_at), "x1": ms(band.end)}
            layout["shapes"].append({**over_all, **span, "fillcolor": "--band", "line": {"width": 0}})
        layout["annotations"].append(
            {
                "text": f"<b>{band.letter}</b>",
                "xref": "x",
                "yref": "paper",
                "x": ms((band.begin + band.end) / 2),
                "y": 1,
                "yshift": 17,
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 11, "color": "--muted"},
            }
        )


def upright(layout: Json, x: float, label: str, colour: str = "--text", dash: str = "dot") -> None:
    """A line at a moment of the run clock, over all panels, with a word beside its top."""
    layout["shapes"].append(
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": ms(x),
            "x1": ms(x),
            "y0": 0,
            "y1": 1,
            "line": {"width": 1.5, "color": colour, "dash": dash},
        }
    )
    if label:
        layout["annotations"].append(
            {
                "text": text(label),
                "xref": "x",
                "yref": "paper",
                "x": ms(x),
                "y": 1,
                "xanchor": "left",
                "yanchor": "top",
                "xshift": 3,
                "showarrow": False,
                "font": {"size": 11, "color": colour},
                "bgcolor": "--card",
            }
        )
