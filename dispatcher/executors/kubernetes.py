"""Create the Pod of an attempt on a real Kubernetes API, once, within a true total deadline (R1, R17)."""

import asyncio
import importlib.metadata
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import structlog

from dispatcher.clock import Now
from dispatcher.errors import DeadlineExceeded, bug, classify_answer, classify_exception
from dispatcher.executors import Attempt
from dispatcher.executors.credentials import Connection
from dispatcher.executors.limiter import RateLimiter
from dispatcher.executors.pod import pod_for, random_pod_name
from dispatcher.executors.transport import OneShotApiClient, Progress
from dispatcher.rules import Disposition, Outcome, Verdict

log = structlog.get_logger(__name__)

try:
    _VERSION = importlib.metadata.version("rideout")
except importlib.metadata.PackageNotFoundError:  # run from a checkout
    _VERSION = "dev"


class KubernetesExecutor:
    """May return all five dispositions (R9). Shared by both dispatch paths.

    :param sign: the token for exactly (row, epoch) (R11).
    :param deadline_s: its clock starts when the limiter let the create through, and it covers name, connect,
        TLS, headers and the whole body.
    :param dry_run: the API answers as it would, and keeps nothing (`preflight`).
    """

    def __init__(
        self,
        *,
        clock: Now,
        sign: Callable[[int, int], str],
        kubeconfig: Path | None,
        agent_command: Sequence[str],
        dispatchers: Sequence[str],
        deadline_s: float,
        limiter: RateLimiter,
        connections: int,
        instance: str = "default",
        dry_run: bool = False,
    ) -> None:
        self._clock = clock
        self._sign = sign
        self._agent_command = tuple(agent_command)
        self._dispatchers = tuple(dispatchers)
        self._instance = instance
        self._deadline_s = deadline_s
        self._limiter = limiter
        self.connection = Connection(kubeconfig, connections=connections, retire_s=2 * deadline_s)
        # The server cuts a little earlier than we do, so that its own answer is seen; it also makes priority
        # and fairness queue for a quarter of this instead of 15 s.
        self._query = f"?fieldManager=rideout&timeout={int(deadline_s * 950)}ms{'&dryRun=All' if dry_run else ''}"

    async def create(self, attempt: Attempt) -> Outcome:
        asked_at = self._clock.now()
        if not await self._limiter.admit():
            refused = Verdict(Disposition.DEFERRED, "client rate limiter", rule="R8")
            return Outcome(refused, asked_at, self._clock.now())
        started_at = self._clock.now()
        verdict = await self._create_once(attempt)
        return Outcome(verdict, started_at, self._clock.now())

    async def close(self) -> None:
        await self.connection.close()

    async def _create_once(self, attempt: Attempt) -> Verdict:
        name = random_pod_name(attempt.run_name, attempt.task_key)
        progress = Progress()
        api: OneShotApiClient | None = None
        deadline = asyncio.timeout(self._deadline_s)
        try:
            pod = pod_for(
                attempt,
                name=name,
                token=self._sign(attempt.row_id, attempt.epoch),
                agent_command=self._agent_command,
                dispatchers=self._dispatchers,
                instance=self._instance,
            )
            async with deadline:
                api = await self.connection.client()
                answer = await api.post(
                    f"/api/v1/namespaces/{quote(attempt.namespace, safe='')}/pods{self._query}",
                    pod,
                    user_agent=f"rideout-dispatcher/{_VERSION} (row={attempt.row_id}; epoch={attempt.epoch})",
                    progress=progress,
                )
        except Exception as error:
            # Whatever the client makes of the cancellation, it was the deadline that ended the create.
            failure = DeadlineExceeded(self._deadline_s) if deadline.expired() else error
            verdict = classify_exception(failure, sent=progress.sent)
            if verdict is None:
                log.exception("bug.create", row=attempt.row_id, epoch=attempt.epoch)
                verdict = bug(error, sent=progress.sent)
        else:
            verdict = classify_answer(answer, pod_name=name)
        if verdict.stale_credentials:
            await self.connection.read_anew(api)
        return verdict
