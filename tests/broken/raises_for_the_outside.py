"""The executor lets an exception out: a lost connection costs the row its claim (R3)."""

from dispatcher.errors import classify_exception
from dispatcher.executors import kubernetes
from dispatcher.rules import Verdict
from tests.broken import Put


def apply(put: Put) -> None:
    def classify(error: Exception, *, sent: bool) -> Verdict | None:
        if isinstance(error, OSError):
            raise error
        return classify_exception(error, sent=sent)

    put(kubernetes, "classify_exception", classify)
