"""The user code of the suite's tasks: it signs the ledger, works for a while, signs again.

The ledger is the first witness of a run: what really ran, written outside the dispatcher's reach. Each line is one
`write` on an O_APPEND descriptor and is fsynced before anything else happens, so that killed code has its start.
Standard library only, and little of it: two cores start only some 25 of these processes a second, and `json` alone
would cost a third of the start-up.

Environment: RIDEOUT_LEDGER (path), RIDEOUT_LANE, RIDEOUT_ROW, RIDEOUT_TRY, RIDEOUT_EPOCH, RIDEOUT_POD_UID,
RIDEOUT_NONCE (from the agent), RIDEOUT_WORK_S (seconds, default 1), RIDEOUT_WORK_EXIT (exit code, default 0).
Exit codes: 0 success, 75 (EX_TEMPFAIL) reschedule, anything else failure.
"""

import os
import sys
import time

RESCHEDULE = 75


def outcome_of(code: int) -> str:
    """The outcome that an exit code stands for (the agent's table)."""
    return {0: "success", RESCHEDULE: "reschedule"}.get(code, "failure")


def quoted(text: str) -> str:
    """A JSON string; the slow way only for what is not plain."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    import json

    return json.dumps(text)


def line(event: str, env: dict[str, str], t_mono: float, outcome: str | None = None) -> bytes:
    """One ledger line. row, try and epoch are whole numbers; `t_mono` is CLOCK_MONOTONIC in seconds."""
    fields = [
        f'"event":"{event}"',
        f'"lane":{quoted(env["RIDEOUT_LANE"])}',
        f'"row":{int(env["RIDEOUT_ROW"])}',
        f'"try":{int(env["RIDEOUT_TRY"])}',
        f'"epoch":{int(env["RIDEOUT_EPOCH"])}',
        f'"pod_uid":{quoted(env["RIDEOUT_POD_UID"])}',
        f'"nonce":{quoted(env["RIDEOUT_NONCE"])}',
        f'"t_mono":{t_mono:.6f}',
    ]
    if outcome is not None:
        fields.append(f'"outcome":"{outcome}"')
    return ("{" + ",".join(fields) + "}\n").encode()


def main() -> int:
    """Sign, work, sign; returns the exit code. Without a ledger nothing runs: an unsigned execution is no evidence."""
    env = dict(os.environ)
    code = int(env.get("RIDEOUT_WORK_EXIT", "0"))
    ledger = os.open(env["RIDEOUT_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.write(ledger, line("start", env, time.monotonic()))
    os.fsync(ledger)
    time.sleep(float(env.get("RIDEOUT_WORK_S", "1")))
    os.write(ledger, line("end", env, time.monotonic(), outcome_of(code)))
    os.fsync(ledger)
    return code


if __name__ == "__main__":
    sys.exit(main())
