"""From the records to the verdict and the report: for a run that just ended, and again for a stored one."""

from pathlib import Path

from chaos.checkers import Result, judge
from chaos.errors import ChaosError
from chaos.records import Records
from chaos.result import write_result


def check(directory: Path) -> Result:
    """Judge the records of a run, write result.json and junit.xml. Raises ChaosError where they cannot be read."""
    result = judge(Records.load(directory))
    try:
        write_result(result, directory)
    except OSError as error:
        raise ChaosError(f"cannot write the result to {directory}: {error.strerror}") from error
    return result


def report(directory: Path) -> Path:
    """Write report.html; returns its path."""
    from chaos.report import write_report  # plotly takes half a second to import: not for those who only check

    return write_report(directory)
