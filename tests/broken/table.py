"""Which invariant each wrong dispatcher turns red, and on which schedule. Those above the line the suite needs too."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tests.broken import schedules as on
from tests.simulation.invariants import Invariant as Must
from tests.simulation.world import World


class Case(NamedTuple):
    turns_red: Must
    schedule: Callable[[World], Awaitable[None]]
    replicas: int = 1


BROKEN: dict[str, Case] = {
    "no_epoch_guard": Case(Must.FENCE, on.stale_replica, 2),
    "hidden_retry": Case(Must.ONE_CREATE, on.outage),
    "window_in_memory": Case(Must.OUTAGE_START, on.restarts),
    "window_cleared_by_a_deferral": Case(Must.OUTAGE_START, on.busy_limiter),
    "error_500_on_the_attempt_budget": Case(Must.DISPOSITION, on.webhook_outage),
    "message_text_instead_of_types": Case(Must.DISPOSITION, on.rejections),
    "max_tries_left_alone": Case(Must.TERMINAL, on.long_outage),
    "terminates_on_a_database_error": Case(Must.PROVEN_TERMINATION, on.database_away_while_agents_ask),
    # ---- so that every invariant is known to be checked
    "any_epoch_may_run": Case(Must.FENCE, on.answers_lost),
    "agent_outlives_its_lease": Case(Must.ONE_AT_A_TIME, on.partition),
    "agent_runs_before_it_asks": Case(Must.REFUSED_NEVER_RUNS, on.long_tasks),
    "lease_shorter_than_told": Case(Must.ONE_IN_ALL, on.long_task_then_no_node),
    "re_offer_keeps_the_epoch": Case(Must.EPOCH, on.outage),
    "window_counts_to_the_failure": Case(Must.WINDOW, on.hanging_at_the_windows_end),
    "hold_does_not_grow": Case(Must.HOLD, on.outage),
    "seventh_attempt": Case(Must.ATTEMPTS, on.rejections),
    "reschedule_counts_as_a_try": Case(Must.USER_RETRIES, on.reschedules),
    "believes_a_failed_list": Case(Must.RE_PLACE, on.lists_fail),
    "re_places_for_ever": Case(Must.INFRA, on.broken_image),
    "clears_running_rows": Case(Must.LEGAL_MOVE, on.clear_while_running),
    "reaps_runs_that_hold": Case(Must.RUNS, on.ten_minutes_out),
    "cleans_living_pods": Case(Must.PODS, on.long_tasks),
    "offers_first_offers_only": Case(Must.OFFERED, on.outage),
    "forgets_dead_claims": Case(Must.OFFERED, on.killed_after_the_claim),
    "forgets_silent_pods": Case(Must.NOT_STUCK, on.pod_vanishes),
    "transaction_around_the_create": Case(Must.SHORT_TRANSACTIONS, on.slow_api),
    "takes_the_lead_at_once": Case(Must.TERMS, on.frozen_leader, 2),
    "deletes_what_has_ended": Case(Must.NOT_LOST, on.long_tasks),
    "raises_for_the_outside": Case(Must.NO_BUG, on.answers_lost),
    "infra_fault_keeps_the_window": Case(Must.ATTEMPTS, on.rejected_then_vanished),
    "wall_clock": Case(Must.RE_PLACE, on.wall_clock_is_set),
}
