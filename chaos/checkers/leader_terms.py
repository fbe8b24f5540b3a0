"""Did one leader tick at a time, and did a change of leader cost the rows nothing?

From the leadership table, which the suite reads in the database when all dispatchers have stopped (history, op
"leader_term": lane, term, holder, `since` and `until` on the run clock). The dispatchers write it, so it is their
claim; what speaks against them is that two of them claim the same moment. A frozen leader does not count while its
lease has run out, whatever it still believes: a thawed leader's refused write is no overlap.
"""

from itertools import pairwise

from chaos.checkers.base import CheckResult, Finding, not_applicable
from chaos.checkers.window import restarted
from chaos.records import Records


class LeaderTerms:
    """The terms of a lane's leaders do not overlap, and each has one holder. No change of leader restarted a row's
    window: its start lives on the row."""

    name = "leader_terms"

    def check(self, records: Records, lane: str) -> CheckResult:
        of, terms = records.lanes[lane], [term for term in records.leader_terms if term.get("lane") == lane]
        if not terms:
            return not_applicable("the leadership table of this lane is not on record")
        found = Finding(records, lane)
        found.need("history")
        terms.sort(key=lambda term: (term["since"], term["term"]))
        found.figures = {
            "terms": len({term["term"] for term in terms}),
            "leaders": len({term["holder"] for term in terms}),
            "windows_restarted": 0,
        }
        for earlier, later in pairwise(terms):
            if later["term"] < earlier["term"]:
                found.offence(None, later["since"], f"term {later['term']} was seen after term {earlier['term']}")
            elif later["term"] == earlier["term"] and later["holder"] != earlier["holder"]:
                who = f"{earlier['holder']} and {later['holder']}"
                found.offence(None, later["since"], f"term {later['term']} had two holders: {who}")
            elif later["term"] > earlier["term"] and earlier["until"] > later["since"]:
                what = f"{earlier['holder']} held term {earlier['term']} until {earlier['until']:.3f} s, past the start"
                found.offence(None, later["since"], f"{what} of term {later['term']} ({later['holder']})")
        changes = [b["since"] for a, b in pairwise(terms) if a["holder"] != b["holder"]]
        for row, claims in of.claims.items():
            for before, after in restarted(of, row, claims):
                if any(before.ended <= at <= after.ended for at in changes):
                    found.figures["windows_restarted"] += 1
                    found.offence(row, after.ended, "its window was restarted by a change of leader")
        return found.result()
