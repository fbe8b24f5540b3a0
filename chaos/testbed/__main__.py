"""`python -m chaos.testbed up | down | build`: the back end of `make up` and `make down`."""

import argparse
import asyncio
import sys
from pathlib import Path

from chaos.errors import ChaosError
from chaos.testbed import hold, tools


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run(given: argparse.Namespace) -> None:
    match given.command:
        case "up":
            print(hold.up(given.directory, progress, given.lanes.split(",")))
        case "down":
            print(hold.down(given.directory))
        case "build":
            print("\n".join(str(path) for path in tools.find_or_build(progress).values()))
        case "hold":
            asyncio.run(hold.hold(given.directory, given.lanes.split(",")))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.testbed", description="a testbed that stays")
    parser.add_argument("--directory", type=Path, default=hold.DIRECTORY, help="where its logs lie (%(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("up", "start a testbed in the background and print how to reach it"),
        ("hold", "the same in the foreground, until Ctrl-C"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--lanes", default=",".join(hold.LANES), help="comma separated (%(default)s)")
    commands.add_parser("down", help="end the testbed that is up")
    commands.add_parser("build", help="find or build the server binaries, and print where they are")
    try:
        given = parser.parse_args()
        given.directory = given.directory.absolute()
        run(given)
    except ChaosError as error:
        print(f"{error}" + (f" (log: {error.log})" if error.log else ""), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
