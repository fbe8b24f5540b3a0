"""All checkers, in the order in which a verdict is read: first whether the run can prove anything, then what it proves.
A new checker is one file and one line here, and a good and a bad history in tests/checkers/histories/."""

from chaos.checkers.backpressure import Backpressure
from chaos.checkers.base import Checker
from chaos.checkers.denied import Denied
from chaos.checkers.dispositions import Dispositions
from chaos.checkers.fault_fired import FaultFired
from chaos.checkers.fencing import Fencing
from chaos.checkers.healed import Healed
from chaos.checkers.leader_terms import LeaderTerms
from chaos.checkers.load_sufficient import LoadSufficient
from chaos.checkers.no_lost_task import NoLostTask
from chaos.checkers.no_unexpected import NoUnexpected
from chaos.checkers.recovery import Recovery
from chaos.checkers.single_execution import SingleExecution
from chaos.checkers.window import Window

CHECKERS: tuple[Checker, ...] = (
    LoadSufficient(),
    FaultFired(),
    Healed(),
    Recovery(),
    SingleExecution(),
    NoLostTask(),
    NoUnexpected(),
    Fencing(),
    Dispositions(),
    Denied(),
    Backpressure(),
    Window(),
    LeaderTerms(),
)
