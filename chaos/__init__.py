"""The chaos suite: it breaks a real control plane under a dispatcher and judges what became of the tasks.

Reading order:

- `run`: the story of one run on a screen; `steps`: its waits; `stage`: everything that is open meanwhile;
  `ride`: the story as a process, with `conclude` (check, report) after it; `series`: several runs on one testbed
  (`standing`); `cli`: the commands people type
- `scenarios/` and `faults/`: what is claimed, what is broken, and how we know that it was; `undo`: what has to be put
  right again, on disk before anything is broken
- `testbed/`: the control plane it happens to; `lanes`: the dispatchers under test, `leaders`: who of them leads;
  `traffic/`: load and user code
- `probe`: the independent client that says when the API is away and back; `sampler`, `progress`: figures for pictures
  and for the person who waits
- `history`, `ledger`, `audit`: the three witnesses; `collect`, `rundir`: how they come together; `records`: all typed
- `checkers/`: the judge, who shares no code with the accused; `result`, `verdict_table`, `report/`: the verdict, told
"""
