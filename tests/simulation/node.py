"""A simulated node: it binds pods, starts their agents, and does what kubelets do wrong."""

from collections.abc import Callable

from tests.simulation.agents import AgentProcess, Plan, Sends
from tests.simulation.cluster import Pod
from tests.simulation.ground import Ground

GRACE_S = 30.0
"""terminationGracePeriodSeconds."""


class Node:
    """`full`: pods wait for a node. `image_broken`: they are bound, and never start."""

    def __init__(self, ground: Ground, network: Sends, plan_of: Callable[[int], Plan]) -> None:
        self._ground, self._network, self._plan_of = ground, network, plan_of
        self.pods: dict[str, Pod] = {}
        self.forget: Callable[[Pod], None] = lambda pod: None
        self.full = False
        self.image_broken = False

    def accept(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        self._ground.later(0.05 + 2 * self._ground.chance("bind", pod.uid), self._bind, pod)

    def heal(self) -> None:
        self.full = self.image_broken = False
        for pod in list(self.pods.values()):
            if not pod.bound:
                self._bind(pod)
            elif not pod.started:
                self._start(pod)

    def agents(self) -> list[AgentProcess]:
        """Every agent that lives, in the order of their starts."""
        return [one for pod in self.pods.values() for one in pod.agents if one.alive]

    def start_again(self, pod: Pod) -> None:
        """A kubelet can start a container twice (R12): the same pod, another process."""
        pod.agents.append(AgentProcess(self._ground, self._network, pod, self._plan_of(pod.row), self._agent_ended))

    def remove(self, pod: Pod) -> None:
        """A delete: SIGTERM, the grace, SIGKILL; then the object goes."""
        if pod.deleting:
            return
        pod.deleting = True
        self._stop(pod)

    def evict(self, pod: Pod) -> None:
        """As `remove`, but the object stays, as Failed."""
        if pod.phase in ("Pending", "Running"):
            pod.phase, pod.reason, pod.finished_at = "Failed", "Evicted", self._ground.now
            self._stop(pod)

    def lose(self, pod: Pod) -> None:
        """The object is removed by force, while its processes run on."""
        self.forget(pod)
        pod.gone = True

    def _bind(self, pod: Pod) -> None:
        if self.full or pod.bound or pod.deleting or pod.gone or pod.phase != "Pending":
            return
        pod.bound = True
        self._ground.later(0.1 + 3 * self._ground.chance("start", pod.uid), self._start, pod)

    def _start(self, pod: Pod) -> None:
        if pod.started or pod.deleting or pod.gone or pod.phase != "Pending":
            return
        if self.image_broken:
            pod.reason = "ImagePullBackOff"
            return
        pod.started, pod.phase, pod.reason = True, "Running", ""
        self.start_again(pod)

    def _stop(self, pod: Pod) -> None:
        for one in pod.agents:
            if one.alive:
                one.stop()
        self._ground.later(GRACE_S, self._kill, pod)
        self._settle(pod)

    def _kill(self, pod: Pod) -> None:
        for one in pod.agents:
            one.kill()

    def _agent_ended(self, pod: Pod) -> None:
        self._ground.later(0.0, self._settle, pod)

    def _settle(self, pod: Pod) -> None:
        """The pod's phase once its processes have ended; a pod that is being deleted goes then."""
        if any(one.alive for one in pod.agents):
            return
        if pod.deleting:
            self.forget(pod)
            self.pods.pop(pod.uid, None)
        elif pod.started and pod.phase == "Running":
            failed = any(one.exit_code for one in pod.agents)
            pod.phase, pod.finished_at = "Failed" if failed else "Succeeded", self._ground.now
