"""Did anything run that nobody asked for?"""

from chaos.checkers.base import CheckResult, Finding
from chaos.records import Records


class NoUnexpected:
    """Nothing ran, and no pod was asked for, that was not handed in. A submission whose outcome is unknown may have
    been taken, so it accounts for one row; a refused one may not."""

    name = "no_unexpected"

    def check(self, records: Records, lane: str) -> CheckResult:
        found, of = Finding(records, lane), records.lanes[lane]
        found.need("history", "ledger", "audit")
        accepted = {one.row for one in of.submissions.values() if one.outcome == "ok"}
        unknown = sum(one.outcome == "info" for one in of.submissions.values())
        known = set(of.rows) | set(of.executions) | set(of.creates)
        strangers = sorted(row for row in known if row not in accepted)
        found.figures = {"rows": len(known), "not_handed_in": len(strangers), "unknown_submissions": unknown}
        # Which of them an unanswered submission made cannot be told; so only those beyond their number are strangers.
        for row in strangers[unknown:]:
            if of.executions.get(row):
                found.absence("history", row, of.executions[row][0].started, "it ran, and was never handed in")
            elif of.creates.get(row):
                found.absence(
                    "history", row, of.creates[row][0].started, "a pod was asked for, and it was never handed in"
                )
            else:
                found.absence("history", row, None, "the dispatcher has a row that was never handed in")
        for row, executions in of.executions.items():
            epochs = {create.epoch for create in of.creates.get(row, ())}
            for one in executions:
                if one.epoch not in epochs:
                    # An apiserver that is killed may have committed a create and not have logged it.
                    found.figures["unwitnessed_creates"] = found.figures.get("unwitnessed_creates", 0) + 1
        return found.result()
