"""Pods from first sight to last report: `Pods` is told what the API says, and one task a pod does the rest."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chaos.testbed.kube import Json
from chaos.testbed.node import manifest, status
from chaos.testbed.node.container import Adopted, Runtime
from chaos.testbed.node.manifest import BadPod, PodSpec
from chaos.testbed.node.memory import Memory
from chaos.testbed.node.podwatch import Seen
from chaos.testbed.node.status import Report, Reporter
from chaos.testbed.reaper import start_time

TERMINAL = ("Succeeded", "Failed")


@dataclass
class Life:
    """A pod that this node runs or ran: its task, and what deletion asks for."""

    spec: PodSpec
    task: asyncio.Task[None] | None = None
    runtime: Runtime | None = None
    deleted: asyncio.Event = field(default_factory=asyncio.Event)
    grace_s: float = 0.0
    over: bool = False


class Pods:
    """All pods of the node. `make` builds a pod's runtime; `record_exit` writes the ledger."""

    def __init__(
        self,
        name: str,
        memory: Memory,
        reporter: Reporter,
        make: Callable[[PodSpec], Runtime],
        record_exit: Callable[[PodSpec, int], None],
        say: Callable[[str], None],
    ) -> None:
        self._name = name
        self._memory = memory
        self._reporter = reporter
        self._make = make
        self._record_exit = record_exit
        self._say = say
        self._lives: dict[str, Life] = {}

    def take(self, seen: Seen) -> None:
        """Act on what the API said. Never blocks."""
        for pod in seen.pods:
            if seen.kind == "gone":
                self._end(manifest.uid_of(pod), manifest.grace_of(pod))
            else:
                self._take_one(pod)
        if seen.kind == "list":
            present = {manifest.uid_of(pod) for pod in seen.pods}
            for uid in [uid for uid in self._lives if uid not in present]:
                self._end(uid, manifest.DEFAULT_GRACE_S)

    def kill_all(self) -> None:
        """SIGKILL for everything that runs, as when the machine runs out of memory: nobody is asked, nobody reports."""
        running = [life for life in self._lives.values() if life.runtime is not None and not life.over]
        self._say(f"told to kill what runs: {len(running)} pods")
        for life in running:
            assert life.runtime is not None
            life.runtime.kill()

    def _take_one(self, pod: Json) -> None:
        uid, meta = manifest.uid_of(pod), pod["metadata"]
        deleting = "deletionTimestamp" in meta
        if uid in self._lives:
            if deleting:
                self._end(uid, manifest.grace_of(pod))
        elif deleting:
            # Nothing of it runs here: the last word is the node's, else the pod would stay "Terminating" for ever.
            if uid not in self._memory.known or self._memory.known[uid].ended or not self._adopt(pod):
                self._reporter.put(Report(meta["namespace"], meta["name"], uid, None, remove=True))
            else:
                self._end(uid, manifest.grace_of(pod))
        elif (pod.get("status") or {}).get("phase") not in TERMINAL:
            self._begin(pod)

    def _begin(self, pod: Json) -> None:
        uid, meta = manifest.uid_of(pod), pod["metadata"]
        if uid in self._memory.known:
            self._adopt(pod)
            return
        try:
            spec = manifest.read(pod, self._name)
        except BadPod as error:
            self._memory.claim(uid)
            container = pod["spec"]["containers"][0]["name"]
            refusal = self._refusal(f"{meta['namespace']}/{meta['name']}", container, str(error))
            self._reporter.put(Report(meta["namespace"], meta["name"], uid, refusal))
            return
        if self._memory.claim(uid):
            self._live(spec, self._make(spec), resumed=False)

    def _adopt(self, pod: Json) -> bool:
        """Go on with a pod of an earlier life of this node; True when it still runs."""
        uid = manifest.uid_of(pod)
        known = self._memory.known[uid]
        try:
            spec = manifest.read(pod, self._name)
        except BadPod:
            return False  # it was refused then, and says so in its status
        if known.ended:
            code = known.code if known.code is not None else Adopted.CODE_LOST
            self._put(spec, status.ended(spec, status.timestamp(), code))
            return False
        if known.pid is not None and known.start is not None and start_time(known.pid) == known.start:
            self._live(spec, Adopted(known.pid, known.start), resumed=True)
            return True
        self._record_exit(spec, Adopted.CODE_LOST)
        self._memory.ended(uid, Adopted.CODE_LOST)
        lost = status.ended(
            spec, status.timestamp(), Adopted.CODE_LOST, "NodeRestarted", "the node was away when the pod ended"
        )
        self._put(spec, lost)
        return False

    def _live(self, spec: PodSpec, runtime: Runtime, *, resumed: bool) -> None:
        life = Life(spec, runtime=runtime)
        self._lives[spec.uid] = life
        life.task = asyncio.create_task(self._run(life, runtime, resumed))

    async def _run(self, life: Life, runtime: Runtime, resumed: bool) -> None:
        spec = life.spec
        try:
            if life.deleted.is_set():  # before its turn to start came
                self._forget(life, None)
                return
            await runtime.start()
        except BadPod as error:
            self._forget(life, self._refusal(f"{spec.namespace}/{spec.name}", spec.container, str(error)))
            return
        pid = getattr(runtime, "pid", None)
        if pid is not None and not resumed:
            self._memory.started(spec.uid, pid, start_time(pid))
        since = status.timestamp()
        self._put(spec, status.running(spec, since))
        code, reason = await self._until_end(life, runtime)
        self._record_exit(spec, code)
        self._memory.ended(spec.uid, code)
        message = {"DeadlineExceeded": "the pod was active longer than activeDeadlineSeconds"}.get(reason, "")
        final = status.ended(spec, since, code if not reason else code or 137, reason, message)
        self._forget(life, final)

    async def _until_end(self, life: Life, runtime: Runtime) -> tuple[int, str]:
        """Wait for the end, and bring it about when the pod is deleted or has been active for too long."""
        ending = asyncio.create_task(runtime.wait())
        deleted = asyncio.create_task(life.deleted.wait())
        reason = ""
        try:
            await asyncio.wait(
                {ending, deleted}, timeout=life.spec.active_deadline_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not ending.done():
                if not deleted.done():
                    reason, life.grace_s = "DeadlineExceeded", manifest.DEFAULT_GRACE_S
                runtime.stop()
                await asyncio.wait({ending}, timeout=life.grace_s)
                if not ending.done():
                    runtime.kill()
            return await ending, reason
        finally:
            deleted.cancel()
            ending.cancel()

    def _end(self, uid: str, grace_s: float) -> None:
        """Deletion, or disappearance from the API."""
        life = self._lives.get(uid)
        if life is None or life.deleted.is_set():
            return
        life.grace_s = grace_s
        life.deleted.set()
        if life.over:
            self._reporter.put(Report(life.spec.namespace, life.spec.name, uid, None, remove=True))
            self._lives.pop(uid, None)

    def _forget(self, life: Life, final: Json | None) -> None:
        """Nothing of the pod runs any more: report it, and keep it in mind until it is deleted."""
        life.over = True
        spec = life.spec
        self._reporter.put(Report(spec.namespace, spec.name, spec.uid, final, remove=life.deleted.is_set()))
        if life.deleted.is_set():
            self._lives.pop(spec.uid, None)

    def _refusal(self, pod: str, container: str, message: str) -> Json:
        """The status of a pod that cannot be run; it stays Pending, and says why."""
        self._say(f"{pod}: {message}")
        return status.waiting(container, "CreateContainerConfigError", message)

    def _put(self, spec: PodSpec, report: dict[str, Any]) -> None:
        self._reporter.put(Report(spec.namespace, spec.name, spec.uid, report))

    async def failed(self) -> None:
        """Raise what a pod's task raised: a bug in the node must not pass for a pod that hangs."""
        while True:
            for life in list(self._lives.values()):
                if life.task and life.task.done():
                    with contextlib.suppress(asyncio.CancelledError):
                        life.task.result()
            await asyncio.sleep(1)
