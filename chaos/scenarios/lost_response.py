"""Creates are committed and their answers are lost: the connection closes, nothing comes, or it comes too late."""

from chaos.scenarios.base import PACE, THREE_LANES, Profile, Scenario, Stroke
from chaos.traffic.schedule import Burst, Segment, Steady

CLAIM = (
    "Where a create is committed and its answer is lost, be it cut off, silent or late, the task is offered again "
    "under a new epoch, and the pod that nobody heard of is told to terminate before it runs any user code. "
    "Each task runs once, and each is answered within a minute of the first create that is accepted again."
)
WARM_S = 3.0
"""Between the burst that opens the connections and the toxic: only what is sent on open ones is committed."""


def lost_response(profile: Profile) -> Scenario:
    """The second and third loss come with a partition between agents and dispatcher: a client that waits for its whole
    deadline finds that the pod has reported long since, unless it cannot."""
    full, pace = profile == "full", PACE[profile]
    hold_s, rate = (20.0, 0.5) if full else (7.0, 1.5)
    before_s = 1.5 + WARM_S

    def lost(name: str) -> Segment:
        sent = Burst(16, within_s=1.5, after_s=before_s + 0.5)
        return Segment(name, (Burst(16, within_s=0.2, after_s=1.5), sent, Steady(rate, 300)), pace.work_s)

    def cut_off(fault: str, segment: str) -> Stroke:
        loss = Stroke(fault, hold_s, load_before=segment, before_s=before_s)
        return Stroke("partition", hold_s=0.0, meanwhile=(loss,), **pace.after)

    return Scenario(
        name="lost-response",
        claim=CLAIM,
        lanes=THREE_LANES,
        segments=(pace.warm_up, lost("closed"), lost("silent"), lost("late")),
        strokes=(
            Stroke("answer-lost", hold_s, load_before="closed", before_s=before_s, **pace.after),
            cut_off("answer-lost-silent", "silent"),
            cut_off("answer-lost-late", "late"),
        ),
        budgets={
            "recovery_s": pace.recovery_s,
            "submitted": 100,
            "due_answer_lost": 16,
            "due_after": 2,
            "running_when_hit": 0,
        },
        **pace.common,
    )
