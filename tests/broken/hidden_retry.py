"""The client sends a create that failed a second time, as many libraries do by themselves (R17)."""

from dispatcher.executors import Attempt
from dispatcher.executors.kubernetes import KubernetesExecutor
from dispatcher.rules import Disposition, Verdict
from tests.broken import Put


def apply(put: Put) -> None:
    once = KubernetesExecutor._create_once

    async def _create_once(self: KubernetesExecutor, attempt: Attempt) -> Verdict:
        verdict = await once(self, attempt)
        return await once(self, attempt) if verdict.disposition is Disposition.UNAVAILABLE else verdict

    put(KubernetesExecutor, "_create_once", _create_once)
