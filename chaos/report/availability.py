"""When was what there: the API on new and on reused connections, the webhook, each lane's leader. As spans of time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from chaos.events import Probe, Sample
from chaos.records import Records


@dataclass(slots=True, frozen=True)
class State:
    """Something was in one state from `begin` to `end` (seconds on the run clock)."""

    begin: float
    end: float
    state: str
    """served, refused, no leader, or the number of a leader's term."""
    why: str = ""


@dataclass(slots=True, frozen=True)
class Strip:
    """The states of one thing in order of time. `witness` says who saw them."""

    name: str
    witness: str
    states: list[State]

    @property
    def away_s(self) -> float:
        return sum(state.end - state.begin for state in self.states if state.state in ("refused", "no leader"))


def strips_of(records: Records, samples: list[Sample]) -> list[Strip]:
    """All strips there are data for, the API first."""
    strips = []
    for connection in ("new", "reused"):
        seen = [probe for probe in records.probes if probe.connection == connection]
        if seen:
            strips.append(Strip(f"API, {connection} connection", "probe", _of_probes(seen)))
        elif samples:
            strips.append(Strip(f"API, {connection} connection", "samples", _of_samples(samples, f"api_{connection}")))
    if any("webhook" in sample.values for sample in samples):
        strips.append(Strip("Webhook", "samples", _of_samples(samples, "webhook")))
    for lane in records.lanes:
        sampled = [term for term in records.leader_terms if term.get("lane") == lane]
        if sampled:
            strips.append(Strip(f"Leader of {lane}", "leadership table", _sampled_terms(sampled)))
            continue
        of_lane = [sample for sample in samples if sample.lane == lane and "leader_term" in sample.values]
        if of_lane:
            strips.append(Strip(f"Leader of {lane}", "samples (claim)", _terms(of_lane)))
    return [strip for strip in strips if strip.states]


def _of_probes(probes: list[Probe]) -> list[State]:
    """Over all lanes' namespaces: served while every lane's last probe was accepted."""
    last: dict[str | None, bool] = {}
    changes = []
    for probe in probes:
        last[probe.lane] = probe.accepted
        served = all(last.values())
        # A probe that was refused after a wait met the trouble when it asked, not when it gave up.
        changes.append((probe.t if served else min(probe.started, probe.t), served, probe.cause or ""))
    changes.sort(key=lambda change: change[0])
    return merged((t, "served" if served else "refused", "" if served else why) for t, served, why in changes)


def _of_samples(samples: list[Sample], name: str) -> list[State]:
    by_time: dict[float, bool] = {}
    for sample in samples:
        if name in sample.values:
            by_time[sample.t] = by_time.get(sample.t, True) and sample.values[name] > 0
    return merged((t, "served" if up else "refused", "") for t, up in sorted(by_time.items()))


def _terms(samples: list[Sample]) -> list[State]:
    terms = ((sample.t, int(sample.values["leader_term"])) for sample in sorted(samples, key=lambda one: one.t))
    return merged((t, f"term {term}" if term > 0 else "no leader", "") for t, term in terms)


def _sampled_terms(terms: list[dict[str, Any]]) -> list[State]:
    """From the leadership table as the suite saw it; what no holder had is a gap without a leader."""
    states: list[State] = []
    for term in sorted(terms, key=lambda term: float(term["since"])):
        begin, end = float(term["since"]), float(term["until"])
        if states and begin > states[-1].end:
            states.append(State(states[-1].end, begin, "no leader"))
        states.append(State(begin, end, f"term {term['term']}", str(term.get("holder") or "")))
    return [state for state in states if state.end > state.begin]


def merged(changes: Iterable[tuple[float, str, str]]) -> list[State]:
    """Observations (t, state, why) to spans: a state lasts until another one is seen, the last until the last look."""
    states: list[State] = []
    begin: float | None = None
    current, why, last = "", "", 0.0
    for t, state, because in changes:
        if begin is None:
            begin, current, why = t, state, because
        elif state != current:
            states.append(State(begin, t, current, why))
            begin, current, why = t, state, because
        last = t
    if begin is not None:
        states.append(State(begin, max(last, begin), current, why))
    return [state for state in states if state.end > state.begin]
