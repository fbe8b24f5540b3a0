"""Priority and fairness throttles the dispatchers: 429, and room for one create at a time.

A FlowSchema leads their creates of pods to a priority level without a seat of its own, which rejects what it cannot
serve at once. A level without seats still serves one request while nothing else of it is under way (seen; see
`canAccommodateSeatsLocked` in k8s.io/apiserver's `flowcontrol/fairqueuing/queueset`): a flow as tight as it gets, in
which some creates go through and a herd does not. The longer it drops requests, the longer is its `Retry-After`: 1 s at
first, 32 s were seen after half a minute, so that a row may be placed that much later than there was room.
"""

from typing import Any

from chaos.faults.asking import FIRED_S, Asking, answers, shown
from chaos.faults.base import Evidence, Fault, Ground, UndoStep
from chaos.faults.objects import apply, delete_step, remove
from chaos.testbed.kube import Reply

NAME = "rideout-throttle"
AT_ONCE = 12
"""Creates that are sent together: one alone would be served."""
LEVEL: dict[str, Any] = {
    "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
    "kind": "PriorityLevelConfiguration",
    "metadata": {"name": NAME},
    "spec": {
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": 0,
            "lendablePercent": 0,
            "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        },
    },
}
SCHEMA: dict[str, Any] = {
    "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
    "kind": "FlowSchema",
    "metadata": {"name": NAME},
    "spec": {
        "priorityLevelConfiguration": {"name": NAME},
        "matchingPrecedence": 50,
        "rules": [
            {
                "subjects": [{"kind": "Group", "group": {"name": "rideout:dispatchers"}}],
                "resourceRules": [{"verbs": ["create"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}],
            }
        ],
    },
}


class Throttle(Fault):
    """The dispatchers' creates of pods meet 429. Fired = of a dozen that the suite sends together in each lane's
    namespace, under the dispatchers' identity, some are throttled; healed = of such a dozen all are accepted."""

    name = "throttle"
    heal_deadline_s = 60.0

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [delete_step(ground, SCHEMA), delete_step(ground, LEVEL)]

    async def inject(self, ground: Ground) -> Evidence:
        await apply(ground, LEVEL, SCHEMA)
        return {"flow": NAME, "seats": 0}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        return await shown(ground, _throttled, FIRED_S, Asking(identity="dispatcher", at_once=AT_ONCE))

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        return {"removed": await remove(ground, SCHEMA, LEVEL)}

    async def confirm_healed(self, ground: Ground, deadline_s: float) -> Evidence:
        room = await answers(ground, _accepted, deadline_s, Asking(identity="dispatcher", at_once=AT_ONCE, every=True))
        evidence = await super().confirm_healed(ground, deadline_s)
        return {**evidence, "room": {lane: round(at, 6) for lane, (at, _) in room.items()}}


def _throttled(reply: Reply) -> bool:
    return reply.status == 429


def _accepted(reply: Reply) -> bool:
    return reply.status == 201
