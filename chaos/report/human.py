"""Numbers as people read them: 4 min 3 s, 1:02, 1,234, three of four.

Everything takes plain numbers (seconds, counts) and returns text; None is an en dash, never "None".
"""

from collections.abc import Sequence

NOTHING = "–"


def seconds(value: float | None) -> str:
    """A duration: `0.34 s`, `31.0 s`, `4 min 3 s`, `1 h 2 min`."""
    if value is None:
        return NOTHING
    if value < 0:
        return f"−{seconds(-value)}"
    if value < 1:
        return f"{value:.2f} s" if value else "0 s"
    if value < 99.95:
        return f"{value:.1f} s"
    whole = round(value)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if left else f"{minutes} min"


def bound(value: float | None) -> str:
    """A duration that somebody set: no decimals that nobody wrote. `60 s`, `0.5 s`, `2 min 35 s`."""
    if value is None:
        return NOTHING
    return f"{value:g} s" if 0 <= value < 100 else seconds(value)


def clock(t: float | None) -> str:
    """A moment on the run clock: `1:02`, `1:02:03`."""
    if t is None:
        return NOTHING
    whole = max(0, round(t))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def precise_clock(t: float | None) -> str:
    """The same to the millisecond, where the order of events matters: `1:02.345`."""
    if t is None:
        return NOTHING
    minutes, left = divmod(max(0.0, round(t, 3)), 60)
    return f"{int(minutes)}:{left:06.3f}"


def count(value: float | None) -> str:
    """A whole number with its thousands apart."""
    return NOTHING if value is None else f"{value:,.0f}"


def number(value: float) -> str:
    """Any number, as short as it can be without lying."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"


def plural(value: int, one: str, many: str | None = None) -> str:
    """`1 task`, `2 tasks`, `no tasks`."""
    many = many or f"{one}s"
    return f"no {many}" if value == 0 else f"{count(value)} {one if value == 1 else many}"


def listed(names: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {last} {names[-1]}"


def shortened(text: str, at_most: int = 240) -> str:
    """The beginning of a long text, cut where a part of it ends."""
    if len(text) <= at_most:
        return text
    kept = text[:at_most]
    end = max(kept.rfind("; "), kept.rfind(", "), kept.rfind(" "))
    return f"{kept[: end if end > at_most // 2 else at_most]} …"


def words(name: str) -> str:
    """An identifier as words: `no_lost_task` → `no lost task`."""
    return name.replace("_", " ").replace("-", " ").strip()


MOMENTS = ("fired_at_s", "healed_at_s", "due", "t")
"""Figures that are moments of the run clock; every other `…_s` is a length of time."""


def figure(name: str, value: object) -> str:
    """The value of a checker's figure; what it is follows from its name (`…_s` are seconds)."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name in MOMENTS:
            return clock(value)
        return seconds(value) if name.endswith("_s") else number(value)
    if isinstance(value, dict) and any(isinstance(one, dict) for one in value.values()):
        return "; ".join(f"{key}: {_figures(one)}" for key, one in value.items())
    if isinstance(value, dict):
        return " · ".join(f"{key} {figure(name, one)}" for key, one in value.items()) or NOTHING
    if isinstance(value, list | tuple):
        return ", ".join(figure(name, one) for one in value) or NOTHING
    return str(value)


def _figures(value: object) -> str:
    """Figures within a figure, each worded by its own name."""
    if not isinstance(value, dict):
        return str(value)
    told = (f"{words(name.removesuffix('_s'))} {figure(name, one)}" for name, one in value.items() if one is not None)
    return ", ".join(told)
