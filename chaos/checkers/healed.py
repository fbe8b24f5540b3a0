"""Were the faults really over, and when?"""

from chaos.checkers.base import CheckResult, Finding
from chaos.events import FaultClass
from chaos.records import Records


class Healed:
    """Every fault was undone, and after an outage a real create by a client that is no admin was accepted in this
    lane's namespace, through the same proxy and webhook. The recovery is counted from that create."""

    name = "healed"

    def check(self, records: Records, lane: str) -> CheckResult:
        found = Finding(records, lane)
        faults = records.faults_of(lane)
        found.need("history")
        if not faults:
            found.doubt("no fault was injected")
        for fault in faults:
            for why in fault.failures:
                if why.startswith(("heal", "confirm_healed")):
                    found.doubt(f"{fault.name}: {why}")
            if fault.healed_at is None:
                found.doubt(f"{fault.name} was not seen to be healed")
        for fault in records.episodes(lane, FaultClass.OUTAGE):
            healed = records.healed_at(fault, lane)
            if healed is None:
                found.doubt(f"{fault.name}: no create of the probe was accepted in this lane's namespace afterwards")
                continue
            begun = fault.heal_began if fault.heal_began is not None else healed
            refused = records.last_refused_before(healed, lane)
            found.figures.setdefault("healed_at_s", {})[fault.name] = round(healed, 3)
            found.figures.setdefault("heal_took_s", {})[fault.name] = round(healed - begun, 3)
            # The API came back somewhere between the last refused probe and the accepted one.
            found.figures.setdefault("known_to_within_s", {})[fault.name] = (
                None if refused is None else round(healed - refused, 3)
            )
        return found.result()
