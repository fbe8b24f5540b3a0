"""The chaos suite: it breaks a real control plane under a dispatcher and judges what became of the tasks.

Reading order: `run` (the story of one run), `scenarios` and `faults` (what is broken, and how we know that it was),
`testbed` (the control plane it happens to), `traffic` (the load), `history` and `ledger` (what was seen),
`checkers` (the judge, who shares no code with the accused), `report`.
"""
