"""A message that merely mentions a refused connection is taken for one: a task that can never run is held (R2)."""

from dispatcher.errors import Answer, classify_answer
from dispatcher.executors import kubernetes
from dispatcher.rules import Disposition, Verdict
from tests.broken import Put


def apply(put: Put) -> None:
    def classify(answer: Answer, *, pod_name: str | None = None) -> Verdict:
        if b"connection refused" in answer.body:
            return Verdict(Disposition.UNAVAILABLE, "connection refused", "R1")
        return classify_answer(answer, pod_name=pod_name)

    put(kubernetes, "classify_answer", classify)
