"""The judge. `judge(records)` asks every checker about every lane and combines the answers.

One claim a file, three answers (`base.Verdict`), one line in `registry`. Nothing here imports anything of
`dispatcher`: the judge shares no code with the accused (enforced by import-linter). Reading order: `base`, then any
checker, then `judge`.
"""

from chaos.checkers.base import Checker, CheckResult, Verdict
from chaos.checkers.judge import LaneVerdict, Result, Tasks, judge
from chaos.checkers.registry import CHECKERS

__all__ = ["CHECKERS", "CheckResult", "Checker", "LaneVerdict", "Result", "Tasks", "Verdict", "judge"]
