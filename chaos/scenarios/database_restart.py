"""PostgreSQL is away: restarted, and then cut off while it runs on."""

from chaos.scenarios.base import BOTH_PATHS, PACE, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "While its database is restarted, or every connection to it is cut in the middle of whatever it did, a dispatcher "
    "loses no task, runs none twice, and tells no agent to terminate that the row does not prove stale. "
    "It dispatches again within half a minute of the database's return."
)


def database_restart(profile: Profile) -> Scenario:
    """Tasks are handed in beforehand: without a database nobody takes one."""
    full, pace = profile == "full", PACE[profile]
    away_s, rate, budget_s = (20.0, 0.7, 30.0) if full else (5.0, 2.0, 10.0)
    after = {**pace.after, "recovery_s": budget_s}

    def due(name: str) -> Segment:
        return Segment(name, (Burst(16, within_s=8.0), Steady(rate, 300)), pace.work_s)

    return Scenario(
        name="database-restart",
        claim=CLAIM,
        lanes=BOTH_PATHS,
        segments=(pace.warm_up, due("restart"), due("cut")),
        strokes=(
            Stroke("postgres-restart", hold_s=away_s, load_before="restart", before_s=2.0, **after),
            Stroke("postgres-cut", hold_s=away_s, load_before="cut", before_s=2.0, **after),
        ),
        budgets={"recovery_s": budget_s, "submitted": 50, "due_away": 8},
        lead_s=40.0 if full else 12.0,
        **pace.common,
    )
