"""The commands people type: `chaos run | list | check | report | heal`.

Exit codes: 0 valid, 1 invalid, 2 unknown or trouble, 64 bad usage. Errors are one line that names the thing and the
remedy, with the log's path where there is one; never a traceback.
"""

import random
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from chaos.errors import ChaosError, UsageError
from chaos.scenarios import ALL, PROFILES, SCENARIOS, find

USAGE = 64

app = typer.Typer(
    name="chaos",
    help="Break a real control plane on purpose, and judge from three witnesses what the dispatcher did.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Where runs are kept.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print result.json on standard output, all else on error.")]
RunName = Annotated[str, typer.Argument(help="A run's directory, its name, or `latest`.")]


@app.command("run")
def run_scenario(
    name: Annotated[str, typer.Argument(help="The scenario, or all; `chaos list` shows them.")],
    profile: Annotated[str, typer.Option(help="full: production constants. quick: a tenth of them.")] = "full",
    seed: Annotated[int | None, typer.Option(help="Replays the schedule of that seed (not the interleaving).")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="So many times, each time with the next seed.")] = 1,
    stop_at_first_failure: Annotated[bool, typer.Option(help="With all or --repeat: go no further.")] = False,
    runs_dir: RunsDir = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Run a scenario: exit 0 valid, 1 invalid, 2 unknown. Of several runs the worst counts."""
    known = next((known for known in PROFILES if known == profile), None)
    if known is None:
        raise UsageError(f"no profile {profile!r}; there are: {', '.join(PROFILES)}")
    if seed is not None and seed < 0:
        raise UsageError(f"--seed is a whole number from 0 up, not {seed}")
    scenarios = [find(one, known) for one in SCENARIOS] if name == ALL else [find(name, known)]
    left_out = {one.name: f"runs in full only: {one.only_full}" for one in scenarios if not one.runs_in(known)}
    if name in left_out:
        raise UsageError(f"{name} {left_out[name]}")
    chosen = random.SystemRandom().randrange(1, 100_000) if seed is None else seed
    console = Console(stderr=as_json)
    if name == ALL or repeat > 1:
        from chaos import series

        seeds = range(chosen, chosen + repeat)
        turns = [series.Turn(one, each) for each in seeds for one in scenarios if one.name not in left_out]
        called = name if repeat == 1 else f"{name}-x{repeat}"
        came = series.ride_all(
            called, turns, runs_dir, console, left_out=left_out, stop_at_first_failure=stop_at_first_failure
        )
        if came.trouble is not None:
            tell_trouble(came.trouble)
        if as_json:
            sys.stdout.write((came.directory / "series.json").read_text(encoding="utf-8"))
        raise typer.Exit(came.exit_code)
    from chaos.ride import ride  # Imports the testbed: a list of scenarios must not wait for it

    ended = ride(scenarios[0], chosen, runs_dir, console)
    if ended.trouble is not None:
        tell_trouble(ended.trouble)
    if as_json:
        sys.stdout.write((ended.directory / "result.json").read_text(encoding="utf-8"))
    raise typer.Exit(ended.exit_code)


@app.command("list")
def list_scenarios() -> None:
    """The scenarios there are, and what each claims."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name in SCENARIOS:
        scenario = find(name, "full")
        only = f" (Full only: {scenario.only_full}.)" if scenario.only_full else ""
        table.add_row(name, scenario.claim + only)
    table.add_row(ALL, "Each of these, one after the other on one testbed; the worst verdict counts.")
    Console().print(table)


@app.command()
def check(run: RunName = "latest", runs_dir: RunsDir = Path("runs"), as_json: AsJson = False) -> None:
    """Judge a stored run again: exit 0 valid, 1 invalid, 2 unknown."""
    from chaos import conclude, verdict_table
    from chaos.result import EXIT_CODES
    from chaos.rundir import find_run

    directory = find_run(run, runs_dir)
    result = conclude.check(directory)
    verdict_table.show(result, directory, Console(stderr=as_json))
    if as_json:
        sys.stdout.write((directory / "result.json").read_text(encoding="utf-8"))
    raise typer.Exit(EXIT_CODES[result.verdict])


@app.command()
def report(run: RunName = "latest", runs_dir: RunsDir = Path("runs")) -> None:
    """Write a stored run's report again."""
    from chaos import conclude
    from chaos.rundir import find_run

    print(conclude.report(find_run(run, runs_dir)))


@app.command()
def heal(runs_dir: RunsDir = Path("runs")) -> None:
    """Put right what a suite that crashed left broken."""
    from chaos.undo import heal_all

    said = heal_all(runs_dir)
    print("\n".join(said) if said else f"nothing is left to heal under {runs_dir}")


def tell_trouble(error: ChaosError) -> None:
    """One line for a person, and where to read more."""
    more = f" (log: {error.log})" if error.log else ""
    errors.print(f"chaos: {error}{more}", markup=False)


def main() -> None:
    """Run the command line and exit; the only place that turns errors into exit codes."""
    try:
        code = app(standalone_mode=False)
    except ChaosError as error:
        tell_trouble(error)
        code = error.exit_code
    except KeyboardInterrupt:
        errors.print("chaos: stopped")
        code = 2
    except Exception as error:
        if hasattr(error, "format_message"):  # Typer's own errors are about what was typed
            errors.print(f"chaos: {error.format_message()} (see: python -m chaos --help)", markup=False)
            code = USAGE
        else:
            tell_trouble(ChaosError(f"this is a bug in the suite: {error!r}", log=keep_traceback(error)))
            code = 2
    sys.exit(code or 0)


def keep_traceback(error: Exception) -> Path:
    """A bug's traceback, in a file that can be sent to a developer."""
    with tempfile.NamedTemporaryFile("w", prefix="chaos-bug-", suffix=".log", delete=False) as log:
        traceback.print_exception(error, file=log)
        return Path(log.name)
