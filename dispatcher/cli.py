"""The command line. Errors for people are one line, and an exit code: 2 trouble outside, 64 bad usage."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsError

from dispatcher.settings import PREFIX, Settings

USAGE = 64

_EXPLAIN_EXAMPLES = (
    "Examples:  dispatcher explain --status 503 --header 'Retry-After: 5' --body 'shutting down'  ·  "
    "jq -c .responseStatus audit.log | tail -1 | dispatcher explain  ·  curl -i https://... | dispatcher explain --json"
)

app = typer.Typer(
    name="dispatcher",
    help="Turns due tasks into Kubernetes Pods, also across an outage of the API. Settings: RIDEOUT_* variables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def serve() -> None:
    """Run one replica: HTTP API, and the dispatching while it leads."""
    settings = _settings()
    from dispatcher.serve import CannotServe
    from dispatcher.serve import serve as run

    with _one_line(CannotServe):
        run(settings, unknown=unknown_variables())


@app.command()
def migrate(revision: Annotated[str, typer.Argument(help="head, or a revision such as 047")] = "head") -> None:
    """Bring the database to the newest schema. Safe to run by every replica at once."""
    settings = _settings()
    from dispatcher.migrate import MigrationFailed, place, upgrade

    with _one_line(MigrationFailed):
        upgrade(settings.database_url, revision)
    typer.echo(f"{place(settings.database_url)} is at {revision}")


@app.command()
def config(as_json: Annotated[bool, typer.Option("--json", help="also in a terminal")] = False) -> None:
    """Show the settings: a table in a terminal, JSON elsewhere. Secrets are not shown."""
    settings = _settings()
    if as_json or not sys.stdout.isatty():
        typer.echo(json.dumps(_shown(settings), indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("variable", "value", "from", "meaning", title="settings")
    for name, value in _shown(settings).items():
        field = Settings.model_fields[name]
        source = (
            "environment" if _variable(name) in os.environ else "profile" if _by_profile(name, value) else "default"
        )
        table.add_row(_variable(name), json.dumps(value), source, field.description or "")
    Console().print(table)


@app.command(epilog=_EXPLAIN_EXAMPLES)
def explain(
    status: Annotated[str | None, typer.Option(help="HTTP status, 100 to 599", metavar="CODE")] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="'Name: value'; may be given several times", metavar="HEADER")
    ] = None,
    body: Annotated[str | None, typer.Option(help="the answer's body; else it is read from stdin")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Say what an answer of the Kubernetes API to a create means, and what would happen next.

    Give the answer by options, or pipe it: JSON such as {"status": 500, "headers": {}, "body": "text or object"}, a
    Status object on its own, or all that `curl -i` prints. Exits 64 for input that is no answer.
    """
    policy = _settings().rules
    from dispatcher.errors import classify_answer
    from dispatcher.explain import BadInput, answer_from
    from dispatcher.explain import explain as say

    try:
        verdict = classify_answer(answer_from(status, header or [], body, sys.stdin.buffer))
    except BadInput as error:
        typer.echo(f"explain: {error}", err=True)
        raise typer.Exit(USAGE) from None
    explanation = say(verdict, policy)
    typer.echo(json.dumps(explanation.as_json()) if as_json else explanation.as_text(verdict.detail))


@app.command()
def preflight(
    namespace: Annotated[str | None, typer.Option(help="instead of RIDEOUT_NAMESPACE")] = None,
    spec: Annotated[
        Path | None, typer.Option(help="JSON file with a task's spec; else a pod that does nothing")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Ask the configured API, before going live, whether it would take our creates. Nothing is created.

    A dry run of a create, a review of the rights that the dispatcher needs, and a look for a LimitRange. Exits 0
    only if the create was accepted and no needed right is missing; else 1, and it says what to do.
    """
    settings = _settings()
    import asyncio

    from dispatcher.preflight import preflight as ask

    try:
        task = json.loads(spec.read_text()) if spec is not None else {"command": ["true"]}
        if not isinstance(task, dict):
            raise ValueError('not an object like {"image": …, "command": […]}')
    except (OSError, ValueError) as error:
        typer.echo(f"preflight: cannot use the spec in {spec}: {error}", err=True)
        raise typer.Exit(USAGE) from None
    report = asyncio.run(ask(settings, namespace=namespace or settings.namespace, spec=task))
    typer.echo(json.dumps(report.as_json()) if as_json else report.as_text())
    raise typer.Exit(0 if report.ready else 1)


def main() -> None:
    """Entry point of `python -m dispatcher`."""
    app()


def _settings() -> Settings:
    """The settings, or the end of the process with a line for each that is wrong."""
    try:
        settings = Settings()
        wrong = list(_wrong_url(settings.database_url))
    except ValidationError as error:
        wrong = list(explain_settings(error))
    except SettingsError as error:  # raised for a list that is no JSON; it names the field only in its text
        named = next((name for name in Settings.model_fields if f'"{name}"' in str(error)), "")
        wrong = [f"{_variable(named)} must be a JSON list ({Settings.model_fields[named].description})"]
    for line in wrong:
        typer.echo(f"dispatcher: {line}", err=True)
    if wrong:
        raise typer.Exit(USAGE)
    return settings


def _wrong_url(url: str) -> Iterator[str]:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        driver = make_url(url).drivername
    except (ArgumentError, ValueError):
        driver = "nothing readable"  # the value may hold a password: it is not repeated
    if driver != "postgresql+psycopg":
        yield f"RIDEOUT_DATABASE_URL must be postgresql+psycopg://user:password@host/database; it is {driver}"


def explain_settings(error: ValidationError) -> Iterator[str]:
    """One line a wrong setting: its variable, its value unless secret, what is wrong, its range and reason."""
    for one in error.errors():
        name = str(one["loc"][0]) if one["loc"] else ""
        field = Settings.model_fields.get(name)
        what = one["msg"].removeprefix("Value error, ")
        if field is None:
            yield what
            continue
        secret = "SecretStr" in str(field.annotation) or name == "database_url"
        value = "" if secret else f"={os.environ.get(_variable(name), '')}"
        yield f"{_variable(name)}{value}: {what} ({field.description})"


@contextmanager
def _one_line(kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kind as error:
        typer.echo(f"dispatcher: {error}", err=True)
        raise typer.Exit(getattr(error, "code", 2)) from None


def _shown(settings: Settings) -> dict[str, Any]:
    from dispatcher.migrate import place

    shown = settings.model_dump(mode="json", exclude={"api_token", "signing_keys", "database_url"})
    keys = len(settings.signing_keys)
    token: SecretStr | None = settings.api_token
    return {
        "database_url": place(settings.database_url),
        "api_token": "set" if token is not None else None,
        "signing_keys": f"{keys} set" if keys else None,
        **shown,
    }


def unknown_variables() -> list[str]:
    """RIDEOUT_ variables that are no setting: more often a slip of the pen than somebody else's."""
    known = {_variable(name) for name in Settings.model_fields} | {"RIDEOUT_SEAM"}
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _by_profile(name: str, value: Any) -> bool:
    default = Settings.model_fields[name].default
    return isinstance(value, (int, float)) and value != default
