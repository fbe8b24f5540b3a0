"""`python -m chaos.testbed.tools`: find or build the server binaries, and print where they are."""

import sys

from chaos.errors import ChaosError
from chaos.testbed.tools import find_or_build


def main() -> int:
    try:
        binaries = find_or_build(lambda line: print(line, file=sys.stderr, flush=True))
    except ChaosError as error:
        print(f"{error}" + (f" (log: {error.log})" if error.log else ""), file=sys.stderr)
        return error.exit_code
    for path in binaries.values():
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
