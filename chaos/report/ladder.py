"""The hold ladder: when one row was offered again and again, against what the rules say.

R5 (today's rule) holds a row for as long as the outage has lasted, at least `hold_min` and at most `hold_max` less
`offer_lead`. R6 (the only rule before the decision) waits 5, 10, 20, 40, 80 s and gives up at the sixth refusal.
"""

from collections.abc import Callable
from dataclasses import dataclass

from chaos.records import Run
from chaos.report.data import LaneData, RunData
from chaos.report.rows import Offer, RowFacts, offers_of

HOLDS = {
    "full": {"hold_min_s": 5.0, "hold_max_s": 60.0, "offer_lead_s": 3.0},
    "quick": {"hold_min_s": 0.5, "hold_max_s": 6.0, "offer_lead_s": 0.3},
}


@dataclass(slots=True, frozen=True)
class Rung:
    """One offer of the row. `after_s` counts from its first offer; `by_rule_s` from the rule and the offer before."""

    number: int
    after_s: float
    by_rule_s: float | None
    ideal_s: float | None
    """What the rule gives when every refusal comes at once: 0, 5, 10, 20, 40, 80, 137, 194 …"""
    offer: Offer

    @property
    def late_s(self) -> float | None:
        return None if self.by_rule_s is None else self.after_s - self.by_rule_s


@dataclass(slots=True, frozen=True)
class Ladder:
    """One row's offers in the outage. `healed_s`: the API's return, seconds after the row's first offer."""

    lane: str
    row: int
    control: bool
    first: float
    rungs: list[Rung]
    ideal: list[float]
    healed_s: float | None
    failed: bool


def ladders_of(data: RunData) -> list[Ladder]:
    """One ladder a lane: of the rows that were due in the main outage, the one that was offered most often in it."""
    if data.outage is None or data.outage.fired_at is None:
        return []
    made = (ladder_of(data, lane) for lane in data.lanes.values())
    return [ladder for ladder in made if ladder is not None]


def ladder_of(data: RunData, lane: LaneData) -> Ladder | None:
    """None where no row of the lane was refused twice in the outage, or no outcome log tells of it."""
    row = _choose(data, lane)
    if row is None:
        return None
    run, claim = data.records.run, offers_of(lane.lane, row.row)
    first = claim[0].started
    failed_by = lane.lane.info.policy == "attempts-only"
    ideal = old_ladder(run) if failed_by else hold_ladder(run, claim[-1].started - first)
    rungs, since = [], None
    for number, offer in enumerate(claim):
        before = claim[number - 1] if number else None
        by_rule = None
        if before is not None and not before.placed:
            since = before.ended if since is None else since
            again = _old_again(run, before, number) if failed_by else _again(run, before, since)
            by_rule = again - first if again is not None else None
        rungs.append(
            Rung(number + 1, offer.started - first, by_rule, ideal[number] if number < len(ideal) else None, offer)
        )
    healed = lane.healed - first if lane.healed is not None else None
    return Ladder(lane.name, row.row, lane.control, first, rungs, ideal, healed, row.failed is not None)


def _choose(data: RunData, lane: LaneData) -> RowFacts | None:
    fired, until = data.outage.fired_at if data.outage else 0.0, lane.healed or data.records.end
    candidates = [one for one in lane.facts.values() if (fired or 0.0) <= one.due < until and one.offers > 2]
    candidates = [one for one in candidates if lane.lane.claims.get(one.row)]
    return min(candidates, key=lambda one: (-one.offers, one.due), default=None)


def _again(run: Run, before: Offer, since: float) -> float | None:
    """R5 from the offer before: counted from its start, and never sooner than `hold_min` after its end."""
    if before.disposition not in ("unavailable",):
        return before.next_offer
    hold_min, longest = _hold(run, "hold_min_s"), _hold(run, "hold_max_s") - _hold(run, "offer_lead_s")
    return max(before.started + min(longest, max(hold_min, before.ended - since)), before.ended + hold_min)


def _old_again(run: Run, before: Offer, refusals: int) -> float:
    """R6: the backoff doubles from refusal to refusal."""
    return before.ended + run.setting("backoff_s") * 2.0 ** (refusals - 1)


def hold_ladder(run: Run, until_s: float) -> list[float]:
    """R5 with instant failures, up to `until_s` and one more: 0, 5, 10, 20, 40, 80, 137, 194 … by default."""
    hold_min, longest = _hold(run, "hold_min_s"), _hold(run, "hold_max_s") - _hold(run, "offer_lead_s")
    return _climb(lambda t, _: t + min(longest, max(hold_min, t)), until_s)


def old_ladder(run: Run) -> list[float]:
    """R6: 0, 5, 15, 35, 75, 155 by default; there is no seventh."""
    backoff, attempts = run.setting("backoff_s"), int(run.setting("attempts"))
    return [backoff * (2.0**number - 1) for number in range(attempts)]


def _climb(again: Callable[[float, int], float], until_s: float, at_most: int = 200) -> list[float]:
    steps = [0.0]
    while steps[-1] < until_s and len(steps) < at_most:
        steps.append(again(steps[-1], len(steps)))
    return steps


def _hold(run: Run, name: str) -> float:
    value = run.settings.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return HOLDS["quick" if run.profile == "quick" else "full"][name]
