"""Ways to spoil a good run, each named for what a broken system would have done.

Every function changes the records of one `SyntheticRun` in place and returns it, so that they can be chained.
"""

from typing import Any

from tests.checkers.synthetic import Event, SyntheticRun

STRANGER = {"pod_uid": "00000000-0000-0000-0000-00000000dead", "nonce": "dead0000dead0000"}


def _execution(run: SyntheticRun, lane: str, row: int) -> tuple[Event, Event]:
    return run.code(lane, row, "start")[0], run.code(lane, row, "end")[0]


def start_again(
    run: SyntheticRun, lane: str, row: int, *, at: float, outcome: str | None = "success", **who: Any
) -> SyntheticRun:
    """Another execution of the row, which starts at `at` and takes a second. `who` overrides what it is known by."""
    start = run.code(lane, row, "start")[0]
    other = {**start, **STRANGER, "epoch": start["epoch"] + 2, "t": at, **who}
    run.ledger.append(other)
    if outcome is not None:
        run.ledger.append({**other, "event": "end", "t": at + 1, "outcome": outcome})
    return run


def overlap(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """Two executions of a row at a time: what happens without a fence."""
    start, _ = _execution(run, lane, row)
    return start_again(run, lane, row, at=start["t"] + 0.3)


def run_after_success(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """A second execution, long after the first had succeeded and said so."""
    _, end = _execution(run, lane, row)
    return start_again(run, lane, row, at=end["t"] + 5)


def kill_and_run_again(run: SyntheticRun, lane: str, row: int, *, fault: str | None) -> SyntheticRun:
    """The code is killed (it writes no end, the node sees it gone) and run again; `fault` is what explains it."""
    start, end = _execution(run, lane, row)
    run.ledger.remove(end)
    gone = run.code(lane, row, "exit")[0]
    gone["t"], gone["code"] = start["t"] + 0.5, -9
    run.history = [e for e in run.history if not (_is_report(e, lane, row) and e["what"] == "finished")]
    start_again(run, lane, row, at=start["t"] + 40)
    if fault is not None:
        injected_fault(run, fault, start["t"] + 0.4, start["t"] + 20)
    return run


def reschedule_and_run_again(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """The code asks to be run later, and is: the same try, a second execution."""
    _, end = _execution(run, lane, row)
    end["outcome"] = "reschedule"
    return start_again(run, lane, row, at=end["t"] + 5)


def _is_report(event: Event, lane: str, row: int) -> bool:
    return event["op"] == "agent" and (event["lane"], event["row"]) == (lane, row)


def injected_fault(run: SyntheticRun, name: str, begin: float, end: float) -> SyntheticRun:
    for step, at in (("inject", begin), ("confirm_fired", begin + 0.1), ("heal", end - 0.1), ("confirm_healed", end)):
        run.say(at, "invoke", "suite", "fault", fault=name, step=step)
        run.say(at + 0.01, "ok", "suite", "fault", fault=name, step=step, evidence={"at": at})
    return run


def never_run(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """The row is placed and nothing ever comes of it: no pod, no code. The dispatcher says that all is well."""
    run.ledger = [e for e in run.ledger if (e["lane"], e["row"]) != (lane, row)]
    run.history = [e for e in run.history if not _is_report(e, lane, row)]
    return run


def lose(run: SyntheticRun, lane: str, row: int, state: str = "queued") -> SyntheticRun:
    """The row is forgotten: it is still waiting when everything else has ended."""
    never_run(run, lane, row)
    return claim_row(run, lane, row, state=state, reason="")


def claim_row(run: SyntheticRun, lane: str, row: int, **fields: Any) -> SyntheticRun:
    """Change what the dispatcher says of a row at the end."""
    run.events("row", lane=lane, row=row)[0].update(fields)
    return run


def forget_row(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """The dispatcher knows no such row, although it had accepted it."""
    never_run(run, lane, row)
    run.audit = [e for e in run.audit if (e["lane"], e["row"]) != (lane, row)]
    run.history.remove(run.events("row", lane=lane, row=row)[0])
    return run


def forget_submission(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """Nobody handed the row in, and yet it ran."""
    key = run.events("submit", lane=lane, row=row)[0]["key"]
    run.history = [e for e in run.history if not (e["op"] == "submit" and e["key"] == key)]
    return run


def fail_for_the_outage(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """What happened before the decision: the attempts are used up in the outage, and the task has failed."""
    never_run(run, lane, row)
    run.audit = [e for e in run.audit if (e["lane"], e["row"]) != (lane, row)]
    claims = run.events("create", lane=lane, row=row)
    run.history = [e for e in run.history if e is not claims[-1]]
    reason = "dispatch_failed: rejected 6 times: connection refused"
    return claim_row(run, lane, row, state="failed", reason=reason, max_tries=1)


def deny(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """A webhook denies the row six times, at the pace of R6, and it fails for it."""
    placed = run.creates(lane, row)[-1]
    never_run(run, lane, row)
    run.audit = [e for e in run.audit if (e["lane"], e["row"]) != (lane, row)]
    backoff, at = run.constants.backoff, 0.0
    for attempt in range(run.constants.attempts):
        again = {**placed, "received": placed["received"] + at, "answered": placed["answered"] + at}
        again |= {"epoch": placed["epoch"] + 2 * attempt, "code": 403, "reason": "Forbidden"}
        run.audit.append({**again, "message": 'admission webhook "a" denied the request: no', "id": f"{row}-{attempt}"})
        at += backoff * 2**attempt
    reason = f"dispatch_failed: rejected {run.constants.attempts} times: 403 denied by webhook: no"
    return claim_row(run, lane, row, state="failed", reason=reason, max_tries=1)


def create_twice(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """The client repeats a create by itself, behind the dispatcher's back (R17)."""
    first = run.creates(lane, row)[-1]
    again = {**first, "received": first["received"] + 0.2, "answered": first["answered"] + 0.2, "id": f"again-{row}"}
    run.audit.append({**again, "pod": first["pod"]})
    return run


def accept_stale_report(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """A pod of an old epoch is told to run: no epoch guard. (The row has to be one of the answer-lost phase.)"""
    refused = run.events("agent", lane=lane, row=row, agent="refused")[0]
    newest = max(create["answered"] for create in run.creates(lane, row))
    for event in run.events("agent", lane=lane, row=row, epoch=refused["epoch"]):
        event["t"] = round(newest + (0.7 if event is refused else 0.6), 6)
    refused["agent"] = "accepted"
    return run


def accept_another_process(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """The kubelet starts a container twice, and both are told to run: no nonce guard (R12)."""
    for event in [e for e in run.events("agent", lane=lane, row=row, what="running") if e["agent"] != "refused"]:
        run.history.append({**event, "t": event["t"] + 0.5, "nonce": STRANGER["nonce"]})
    return run


def refuse_current_report(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """The right pod is told to terminate, as by a dispatcher that takes a database error for a proof (R14)."""
    accepted = run.events("agent", lane=lane, row=row, what="running", agent="accepted")[0]
    accepted["agent"], accepted["reason"] = "refused", "stale epoch"
    return run


def no_stale_reports(run: SyntheticRun, lane: str) -> SyntheticRun:
    """The pods that lost answers left behind never came to report: the fence was not put to the test."""
    stale = {(e["row"], e["epoch"]) for e in run.events("agent", lane=lane) if e["agent"] == "refused"}
    run.history = [
        e for e in run.history if not (e["op"] == "agent" and e["lane"] == lane and (e["row"], e["epoch"]) in stale)
    ]
    return run


def answer_at(run: SyntheticRun, lane: str, row: int, t: float) -> SyntheticRun:
    """The row's create, its pod and its code all come later: its first answer is at `t`."""
    create = run.creates(lane, row)[0]
    shift = t - create["answered"]
    epoch = create["epoch"]
    create["answered"] += shift
    create["received"] += shift
    for claim in run.events("create", lane=lane, row=row, epoch=epoch):
        claim["started"] += shift
        claim["ended"] += shift
    for event in [*run.ledger, *run.events("agent")]:
        if (event["lane"], event["row"], event["epoch"]) == (lane, row, epoch):
            event["t"] = round(event["t"] + shift, 6)
    return run


def not_fired(run: SyntheticRun, fault: str) -> SyntheticRun:
    """The fault was injected and no client saw anything of it."""
    confirmed = run.events("fault", fault=fault, step="confirm_fired", type="ok")[0]
    confirmed["type"], confirmed["evidence"] = "fail", {"error": "no create of the probe was refused within 20 s"}
    return run


def not_healed(run: SyntheticRun, fault: str, lane: str) -> SyntheticRun:
    """After the heal no create of the probe was ever accepted in the lane's namespace."""
    healed = run.events("fault", fault=fault, step="confirm_healed", type="ok")[0]
    healed["type"], healed["evidence"] = "fail", {"error": f"no create was accepted for {lane} within 150 s"}
    for probe in run.events("probe", lane=lane, type="ok"):
        if probe["t"] > run.times.heal:
            probe.update(type="fail", code=403, cause="403 Forbidden")
    return run


def leak(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """A create is committed in the middle of the outage: it was none."""
    return answer_at(run, lane, row, (run.times.fired + run.times.heal) / 2)


def drop_load(run: SyntheticRun, lane: str, *kinds: str) -> SyntheticRun:
    """That part of the load was never handed in, and nothing came of it."""
    gone = {row for row, kind in run.kinds[lane].items() if kind in kinds}
    keys = {e["key"] for e in run.events("submit", lane=lane) if e.get("row") in gone}
    run.history = [
        e
        for e in run.history
        if not (e.get("lane") == lane and (e.get("row") in gone or (e["op"] == "submit" and e["key"] in keys)))
    ]
    run.audit = [e for e in run.audit if not (e["lane"] == lane and e["row"] in gone)]
    run.ledger = [e for e in run.ledger if not (e["lane"] == lane and e["row"] in gone)]
    return run


def call_it_rejected(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """A refused connection is taken for the API's own refusal, and billed as one."""
    claim = next(c for c in run.events("create", lane=lane, row=row) if c["disposition"] == "Unavailable")
    claim["disposition"], claim["attempts"] = "Rejected", claim["attempts"] + 1
    return run


def call_answered(run: SyntheticRun, lane: str, row: int, code: int, reason: str, message: str) -> SyntheticRun:
    """The apiserver answered the row's placed create otherwise than the dispatcher says."""
    run.creates(lane, row)[-1].update(code=code, reason=reason, message=message)
    return run


def bill_attempts(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """Unavailable offers spend attempts: the count grows with every one of them (point 2 of the decision)."""
    for number, claim in enumerate(run.events("create", lane=lane, row=row), 1):
        claim["attempts"] = number
    return run


def bill_a_retry(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """The dispatch failed, and the user's retries paid for a second try (R7): `max_tries` was left alone."""
    start, end = _execution(run, lane, row)
    last = run.creates(lane, row)[-1]
    for event in (start, end, last, *run.events("create", lane=lane, row=row, epoch=last["epoch"])):
        event["try"] = 2
    return claim_row(run, lane, row, try_number=2, max_tries=3, retries=2)


def restart_window(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """The start of the outage is kept in memory, and lost halfway (by a restart, or a change of leader)."""
    held = [c for c in run.events("create", lane=lane, row=row) if c["disposition"] == "Unavailable"]
    half = len(held) // 2
    for claim in held[half:]:
        claim["unavailable_since"] = held[half]["ended"]
    return run


def never_expire(run: SyntheticRun, lane: str, row: int) -> SyntheticRun:
    """The row's window passes, and the row does not fail."""
    last = run.events("create", lane=lane, row=row)[-1]
    last.update(decision="re-offer", next_offer=last["ended"] + 6)
    return claim_row(run, lane, row, state="scheduled", reason="held: Kubernetes API unavailable: connection refused")


def leader_term(run: SyntheticRun, lane: str, term: int, holder: str, since: float, until: float) -> SyntheticRun:
    run.say(until, "info", "suite", "leader_term", lane=lane, term=term, holder=holder, since=since, until=until)
    return run


def two_terms(run: SyntheticRun, lane: str, change: float, overlap: float = 0.0) -> SyntheticRun:
    """The leader changes once; the earlier one keeps its term for `overlap` seconds more."""
    leader_term(run, lane, 1, "a", 1, change + overlap)
    return leader_term(run, lane, 2, "b", change + 0.5, run.times.collect)


def tear(run: SyntheticRun, file: str) -> SyntheticRun:
    """The file's last line is cut off: its writer died in the middle."""
    run.tails[file] = b'{"event":"start","lane":"ti'
    return run


def garble(run: SyntheticRun, file: str) -> SyntheticRun:
    """A line of the file cannot be read."""
    run.tails[file] = b'{"event":"sta{"event":"end"}\n'
    return run


def no_outcome_log(run: SyntheticRun, lane: str) -> SyntheticRun:
    """What the dispatcher says of its creates was not collected."""
    run.history = [e for e in run.history if not (e["op"] == "create" and e["lane"] == lane)]
    return run


def empty(run: SyntheticRun, witness: str) -> SyntheticRun:
    """The witness says nothing at all."""
    getattr(run, witness).clear()
    return run
