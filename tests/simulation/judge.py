"""The judge: looks at every move and at the witnesses' notes, after everything that could run has run."""

from collections.abc import Iterable
from typing import NoReturn

from tests.simulation.ground import Execution, Ground, Report
from tests.simulation.history import Gone, History, Row, Run
from tests.simulation.invariants import Invariant as Must
from tests.simulation.invariants import Violated
from tests.simulation.moves import Moves, Orders, Situation

TOLD = 60


class Judge:
    """Raises Violated as soon as an invariant does not hold."""

    def __init__(self, ground: Ground, history: History) -> None:
        self._ground, self._history = ground, history
        self.orders, self.situation = Orders(), Situation()
        self.rows: dict[int, Row] = {}
        self.runs: dict[int, str] = {}
        self.moves = Moves(ground.notes, self.orders, self.situation)
        self.submitted: set[int] = set()
        self._ran: set[tuple[int, int, str, str]] = set()
        self._executions_seen: list[Execution] = []
        self._creations_seen = self._deletions_seen = 0
        self._created: set[tuple[int, int]] = set()
        self._names: set[str] = set()
        self.trail: list[str] = []
        """Every move in one line: two schedules are the same if their trails are."""

    def observe(self, *, committed: bool = True) -> None:
        """Judge whatever is new. Virtual time has not passed since it happened.

        :param committed: there was a transaction since the last look.
        """
        for error in self._ground.notes.raised:
            raise error
        for move in self._history.moves() if committed else ():
            self._take(move)
        self._look_at_executions()
        self._look_at_creates()
        self._look_at_deletions()
        for bug in self._ground.notes.bugs:
            self.fail(Must.NO_BUG, None, bug)

    def answered(self, report: Report) -> None:
        """An agent got an answer from a dispatcher: is it one that the row bears out (R11, R14)?"""
        for move in self._history.moves():
            self._take(move)
        row = self.rows.get(report.row)
        if report.refused and (row is None or not proves_termination(row, report)):
            what = f"{report.what} of {report.nonce} was refused: {report.body}"
            self.fail(Must.PROVEN_TERMINATION, report.row, what)
        me = (report.row, report.epoch, report.pod_uid, report.nonce)
        if report.status == 200 and me not in self._ran:
            self.fail(Must.FENCE, report.row, f"{report.what} of {report.nonce} was accepted, it never had the row")
        if report.status == 500:
            self.fail(Must.NO_BUG, report.row, f"{report.what} was answered 500: {report.body}")

    def fail(self, must: Must, row: int | None, what: str) -> NoReturn:
        mine = [f"{line}" for line in self.trail if row is None or line.split()[2] == f"{row}:"]
        raise Violated(must, row, what, [*self._ground.notes.story[-TOLD:], "the row's moves:", *mine[-TOLD:]])

    def _take(self, move: Row | Gone | Run) -> None:
        now = self._ground.now
        match move:
            case Gone(row_id):
                self.fail(Must.NOT_LOST, row_id, "the row was deleted")
            case Run(run_id, state):
                self._run_moved(run_id, state)
            case Row():
                old = self.rows.get(move.id)
                self.rows[move.id] = move
                self.trail.append(_line(now, move))
                if move.state == "running" and move.pod_uid and move.nonce:
                    self._ran.add((move.id, move.epoch, move.pod_uid, move.nonce))
                for must, what in self.moves.complaints(old, move, now):
                    self.fail(must, move.id, what)

    def _run_moved(self, run_id: int, state: str) -> None:
        before, self.runs[run_id] = self.runs.get(run_id), state
        mine = [one for one in self.rows.values() if one.run_id == run_id]
        if before is None or before == state or state == "running":
            return
        right = "failed" if any(one.state == "failed" for one in mine) else "success"
        if not all(one.ended for one in mine) or state != right:
            states = ", ".join(one.state for one in mine)
            self.fail(Must.RUNS, None, f"run {run_id} became {state} with its rows {states}")

    # ---- executions: the node's record against the notes of the network

    def _look_at_executions(self) -> None:
        executions = self._ground.notes.executions
        for one in executions[len(self._executions_seen) :]:
            self._look_at(one, self._executions_seen)
            self._executions_seen.append(one)

    def _look_at(self, new: Execution, earlier: Iterable[Execution]) -> None:
        notes = self._ground.notes
        if new.nonce not in notes.accepted or new.nonce in notes.refused:
            self.fail(Must.REFUSED_NEVER_RUNS, new.row, f"user code started in {new.nonce}, which was not told to run")
        for old in earlier:
            if old.row != new.row:
                continue
            if old.end is None or old.end > new.start:
                self.fail(Must.ONE_AT_A_TIME, new.row, f"{old.nonce} runs since {old.start:.3f}, {new.nonce} too")
            if old.try_number == new.try_number and not self._may_run_again(old, new):
                self.fail(Must.ONE_IN_ALL, new.row, f"{old.nonce} ended as {old.outcome}, then {new.nonce} ran")

    def _may_run_again(self, old: Execution, new: Execution) -> bool:
        return old.outcome == "reschedule" or self.excused(old.pod_uid, old.start, new.start)

    def excused(self, pod_uid: str, start: float, end: float) -> bool:
        """Whether a fault between these times may have cost this pod its lease."""
        return any(at <= end and until >= start and uid in ("", pod_uid) for at, until, uid in self._excuses())

    def _excuses(self) -> Iterable[tuple[float, float, str]]:
        begun: dict[tuple[str, str], float] = {}
        for at, uid, name in self._ground.notes.excuses:
            if name.startswith("end of "):
                if (since := begun.pop((uid, name.removeprefix("end of ")), None)) is not None:
                    yield since, at, uid
            else:
                begun.setdefault((uid, name), at)
        for (uid, _), since in begun.items():
            yield since, self._ground.now, uid

    # ---- the API's record

    def _look_at_creates(self) -> None:
        creations = self._ground.notes.creations
        for one in creations[self._creations_seen :]:
            if (one.row, one.epoch) in self._created or one.pod_name in self._names:
                self.fail(Must.ONE_CREATE, one.row, f"epoch {one.epoch} was created a second time, as {one.pod_name}")
            self._created.add((one.row, one.epoch))
            self._names.add(one.pod_name)
        self._creations_seen = len(creations)

    def _look_at_deletions(self) -> None:
        deletions = self._ground.notes.deletions
        for uid, finished in deletions[self._deletions_seen :]:
            row_id, epoch, _ = (int(part) for part in uid.split("-"))
            row = self.rows[row_id]
            at_work = row.state in ("scheduled", "queued", "running")
            if at_work and row.epoch == epoch and row.pod_uid in (None, uid) and not finished:
                self.fail(Must.PODS, row_id, f"pod {uid} was deleted; the row is {row.state} under epoch {row.epoch}")
        self._deletions_seen = len(deletions)


def proves_termination(row: Row, report: Report) -> bool:
    """R14: stale epoch, other pod or process, or any state but scheduled, queued and running."""
    return (
        row.epoch != report.epoch
        or row.pod_uid not in (None, report.pod_uid)
        or row.nonce not in (None, report.nonce)
        or row.state not in ("scheduled", "queued", "running")
    )


def _line(now: float, row: Row) -> str:
    held = f" since {row.since:.3f}" if row.since is not None else ""
    pod = f" pod {row.pod_uid}" if row.pod_uid else ""
    claim = f" claim until {row.claim_until:.3f}" if row.claim_until is not None else ""
    return (
        f"{now:10.3f}  row {row.id}: {row.state} epoch {row.epoch} try {row.try_number}/{row.max_tries} "
        f"attempts {row.attempts}{held}{pod}{claim} next {row.next_offer_at:.3f} ({row.reason})"
    )
