"""A 500 counts as an answer: an unreachable webhook fails every due task after 2m35s, as before the decision (R1)."""

from dispatcher.errors import Answer, classify_answer
from dispatcher.executors import kubernetes
from dispatcher.rules import Disposition, Verdict
from tests.broken import Put


def apply(put: Put) -> None:
    def classify(answer: Answer, *, pod_name: str | None = None) -> Verdict:
        if answer.status == 500:
            return Verdict(Disposition.REJECTED, "500", "R3")
        return classify_answer(answer, pod_name=pod_name)

    put(kubernetes, "classify_answer", classify)
