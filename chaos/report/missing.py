"""What is missing from a run's records, or damaged, in words."""

from collections.abc import Mapping, Sequence

from chaos.events import Sample
from chaos.jsonl import Damage
from chaos.report import human
from chaos.report.verdicts import Verdicts

WITNESSES = {
    "history": ("history.jsonl", "the suite’s own events, faults and probes"),
    "ledger": ("ledger.jsonl", "what user code wrote about itself"),
    "audit": ("audit.jsonl", "the apiserver’s log of creates"),
}


def what(damage: Mapping[str, Damage], verdicts: Verdicts, samples: Sequence[Sample]) -> list[str]:
    """What is missing or damaged, in words; empty when everything is there."""
    told = []
    for witness, (file, of) in WITNESSES.items():
        harm = damage[witness]
        if harm.missing:
            told.append(f"{file} is missing ({of})")
        elif harm.silent:
            told.append(f"{file} is empty ({of})")
        elif harm.damaged:
            lines = human.plural(harm.damaged, "damaged line")
            told.append(f"{file} has {lines}, the first is line {harm.first_damaged_line} ({of})")
        elif harm.torn:
            told.append(f"the last line of {file} is torn off and was left out ({of})")
    if verdicts.trouble is not None:
        told.append(verdicts.trouble)
    if not samples:
        told.append("samples.csv is missing or empty (webhook and leader terms come from it)")
    return told
