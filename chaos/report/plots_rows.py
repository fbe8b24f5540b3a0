"""The plots of single rows: the hold ladder, and the timeline of the worst."""

from collections.abc import Mapping

from chaos.report import human
from chaos.report.data import RunData
from chaos.report.figure import Figure, Json, Key, base_layout, category_axis, clock_axis, ms, ms_long, shade, text
from chaos.report.ladder import Ladder
from chaos.report.rows import RowFacts, offers_of
from chaos.report.verdicts import Offence

DISPOSITIONS = {
    "placed": ("placed", "the API took the pod", "--placed", "circle", "circle"),
    "unavailable": ("unavailable", "the API could not take the request; the row is held", "--rode", "x", "x-thin"),
    "rejected": ("rejected", "refused; it costs one of six attempts", "--refused", "square", "square"),
    "backpressure": (
        "backpressure",
        "throttled or out of quota; offered again later",
        "--pressure",
        "triangle",
        "triangle-up",
    ),
    "deferred": ("deferred", "not sent at all; offered at the next tick", "--due", "diamond", "diamond"),
}
ROW_HEIGHT = 17


def ladder(ladders: list[Ladder]) -> Figure | None:
    """Offers of one row a lane, in seconds after its first, beside what the rules say. None without any ladder."""
    if not ladders:
        return None
    lines: list[tuple[str, list[float], str, Ladder | None]] = []
    now = [one for one in ladders if not one.control]
    before = [one for one in ladders if one.control]
    if now:
        longest = max(now, key=lambda one: len(one.ideal))
        lines.append(("rule R5 (now)", longest.ideal, "--muted", None))
    lines += [(f"{one.lane}, row {one.row}", [rung.after_s for rung in one.rungs], "", one) for one in now]
    if before:
        lines.append(("rule R6 (before)", before[0].ideal, "--muted", None))
    lines += [(f"{one.lane}, row {one.row}", [rung.after_s for rung in one.rungs], "", one) for one in before]
    end = max((times[-1] for _, times, _, of in lines if of is not None and times), default=1.0)
    height = 44 * len(lines) + 84
    names = [text(name) for name, *_ in lines]
    layout = base_layout(
        height,
        xaxis={
            "range": [-0.04 * end, end * 1.05],
            "ticksuffix": " s",
            "gridcolor": "--grid",
            "zeroline": False,
            "linecolor": "--axis",
            "nticks": 9,
        },
        yaxis=category_axis(names),
    )
    figure = Figure("ladder", _ladder_in_words(ladders), height, layout=layout, linked=False)
    rules: list[int] = []
    for name, times, _, of in lines:
        if of is None:
            shown = [t for t in times if t <= end * 1.05]
            rules.append(
                figure.add(
                    type="scatter",
                    mode="markers+text",
                    x=shown,
                    y=[text(name)] * len(shown),
                    text=[f"{t:.0f}" if t >= 10 or t == int(t) else f"{t:.1f}" for t in shown],
                    textposition="top center",
                    textfont={"size": 10, "color": "--muted"},
                    cliponaxis=False,
                    marker={"symbol": "line-ns-open", "size": 15, "color": "--muted", "line": {"width": 2}},
                    hovertemplate="%{x:.0f} s by the rule<extra></extra>",
                )
            )
    if rules:
        figure.keys.append(
            Key(
                "by the rule",
                "when every refusal comes at once; the number is seconds",
                "--muted",
                "line",
                tuple(rules),
            )
        )
    _rungs(figure, ladders)
    _returns(layout, ladders)
    return figure


def _rungs(figure: Figure, ladders: list[Ladder]) -> None:
    rungs = [(one, rung) for one in ladders for rung in one.rungs]
    for disposition, (label, explain, colour, mark, symbol) in DISPOSITIONS.items():
        some = [(one, rung) for one, rung in rungs if rung.offer.disposition == disposition]
        if not some:
            continue
        number = figure.add(
            type="scatter",
            mode="markers",
            cliponaxis=False,
            x=[round(rung.after_s, 3) for _, rung in some],
            y=[text(f"{one.lane}, row {one.row}") for one, _ in some],
            text=[f"offer {rung.number}: {label}, {text(rung.offer.cause) or 'accepted'}" for _, rung in some],
            marker={
                "symbol": symbol,
                "size": 11,
                "color": colour,
                "line": {"width": 3 if symbol == "x-thin" else 1, "color": colour},
            },
            hovertemplate="%{text}, after %{x:.1f} s<extra></extra>",
        )
        figure.keys.append(Key(label, explain, colour, mark, (number,)))


def _returns(layout: Json, ladders: list[Ladder]) -> None:
    """The outage as a band and the API's return, counted from the first offers (they differ by seconds)."""
    returns = [one.healed_s for one in ladders if one.healed_s is not None and not one.control]
    if not returns:
        return
    back = sum(returns) / len(returns)
    over_all = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    band = {"type": "rect", "name": "fault-outage", "x0": 0, "x1": back, "fillcolor": "--band", "layer": "below"}
    layout["shapes"] += [
        {**over_all, **band, "line": {"width": 0}},
        {**over_all, "type": "line", "x0": back, "x1": back, "line": {"width": 1.5, "color": "--ran", "dash": "dot"}},
    ]
    layout["annotations"].append(
        {
            "text": "API back",
            "xref": "x",
            "yref": "paper",
            "x": back,
            "y": 1,
            "yanchor": "bottom",
            "showarrow": False,
            "font": {"size": 11, "color": "--ran"},
        }
    )


def _ladder_in_words(ladders: list[Ladder]) -> str:
    told = []
    for one in ladders:
        times = human.listed(
            [f"{rung.after_s:.0f}" if rung.after_s >= 10 else f"{rung.after_s:.1f}" for rung in one.rungs]
        )
        end = "; it failed" if one.failed else ""
        told.append(f"{one.lane}, row {one.row}: offers {times} s after the first{end}")
    return f"{'. '.join(told)}."


def timeline(
    data: RunData, name: str, rows: list[RowFacts], offences: Mapping[tuple[str, int], Offence]
) -> Figure | None:
    """One line a row: waiting, offers, runs. Rows that a check names come first, with a star. None without any row."""
    if not rows:
        return None
    height = ROW_HEIGHT * len(rows) + 80
    labels = {(one.lane, one.row): text(f"{one.lane} {one.row}") for one in rows}
    layout = base_layout(
        height,
        barmode="overlay",
        bargap=0.45,
        xaxis=clock_axis(data.span, side="bottom"),
        yaxis=category_axis(list(labels.values()), tickfont={"size": 10}, dtick=1, range=[-0.7, len(rows) - 0.3]),
    )
    shade(layout, data.bands)
    figure = Figure(name, _timeline_in_words(rows), height, layout=layout)
    end = data.span.end
    waits = [(one, one.due, one.placed if one.placed is not None else one.failed or end) for one in rows]
    number = _spans(figure, labels, waits, "waiting", "--due-fill", "--due")
    figure.keys.append(Key("waiting", "from due to placed (or to the failure)", "--due", "area", (number,)))
    runs = [(one, e.started, e.over if e.over is not None else end) for one in rows for e in one.executions]
    if runs:
        number = _spans(figure, labels, runs, "user code runs", "--ran", "--card")
        figure.keys.append(Key("running", "user code at work (ledger)", "--ran", "bar", (number,)))
    _offers(figure, data, rows, labels)
    fails = [(one, one.failed) for one in rows if one.failed is not None]
    if fails:
        number = _points(figure, labels, fails, "failed (claim)", "x", "--refused", 9)
        figure.keys.append(Key("failed", "the dispatcher gave the row up (claim)", "--refused", "x", (number,)))
    stars = [(one, offences[one.lane, one.row]) for one in rows if (one.lane, one.row) in offences]
    if stars:
        at = [(one, offence.t if offence.t is not None else one.due) for one, offence in stars]
        number = _points(figure, labels, at, "first offence", "star", "--bad", 15)
        figure.data[number]["text"] = [text(offence.what) for _, offence in stars]
        figure.data[number]["hovertemplate"] = "%{text}<extra>first offence</extra>"
        figure.keys.append(Key("first offence", "the first row that broke a check", "--bad", "star", (number,)))
    return figure


Placed = tuple[RowFacts, float, float]


def _spans(
    figure: Figure, labels: Mapping[tuple[str, int], str], spans: list[Placed], what: str, fill: str, edge: str
) -> int:
    return figure.add(
        type="bar",
        orientation="h",
        y=[labels[one.lane, one.row] for one, _, _ in spans],
        base=[ms(begin) for _, begin, _ in spans],
        x=[ms_long(end - begin) for _, begin, end in spans],
        customdata=[
            [human.seconds(max(0.0, end - begin)), human.clock(begin), human.clock(end)] for _, begin, end in spans
        ],
        marker={"color": fill, "line": {"width": 0.5, "color": edge}},
        hovertemplate=f"{what} for %{{customdata[0]}}, %{{customdata[1]}} to %{{customdata[2]}}<extra>%{{y}}</extra>",
    )


def _points(
    figure: Figure,
    labels: Mapping[tuple[str, int], str],
    points: list[tuple[RowFacts, float]],
    what: str,
    symbol: str,
    colour: str,
    size: int,
) -> int:
    return figure.add(
        type="scatter",
        mode="markers",
        x=[ms(t) for _, t in points],
        y=[labels[one.lane, one.row] for one, _ in points],
        marker={"symbol": symbol, "size": size, "color": colour, "line": {"width": 1, "color": "--card"}},
        hovertemplate=f"{what} at %{{x}}<extra>%{{y}}</extra>",
    )


def _offers(figure: Figure, data: RunData, rows: list[RowFacts], labels: Mapping[tuple[str, int], str]) -> None:
    offers = [(one, offer) for one in rows for offer in offers_of(data.records.lanes[one.lane], one.row)]
    for disposition, (label, explain, colour, mark, symbol) in DISPOSITIONS.items():
        some = [(one, offer) for one, offer in offers if offer.disposition == disposition]
        if not some:
            continue
        number = figure.add(
            type="scatter",
            mode="markers",
            x=[ms(offer.started) for _, offer in some],
            y=[labels[one.lane, one.row] for one, _ in some],
            text=[text(offer.cause) or "accepted" for _, offer in some],
            marker={
                "symbol": symbol,
                "size": 6,
                "color": colour,
                "line": {"width": 1.5 if symbol == "x-thin" else 0, "color": colour},
            },
            hovertemplate=f"{label}: %{{text}}, %{{x}}<extra>%{{y}}</extra>",
        )
        figure.keys.append(Key(label, explain, colour, mark, (number,)))


def _timeline_in_words(rows: list[RowFacts]) -> str:
    told = [f"{one.lane} {one.row}: {one.outcome} ({human.seconds(one.waited)})" for one in rows[:5]]
    return f"{human.plural(len(rows), 'row')}, the worst first. {'; '.join(told)}."
