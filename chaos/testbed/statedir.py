"""The temporary directory of one testbed: databases, keys, kubeconfigs, sockets; gone when the testbed is."""

import os
import shutil
import tempfile
from pathlib import Path

from chaos.errors import ChaosError
from chaos.testbed import postgres

NEEDED_BYTES = 512 * 1024**2


def make() -> Path:
    """A new directory that others may pass through, but not list. Raises ChaosError where there is no room or place.

    PostgreSQL's user has to get in when we are root, so a TMPDIR inside a closed home will not do then. The
    permissions of directories that are not ours are never touched.
    """
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    if os.geteuid() == 0:
        places = [place for place in places if place.is_dir() and postgres.may_traverse(place.resolve())]
        if not places:
            raise ChaosError("no temporary directory that other users may enter: set TMPDIR to one (mode 1777)")
    free = shutil.disk_usage(places[0]).free
    if free < NEEDED_BYTES:
        raise ChaosError(
            f"{free // 1024**2} MiB free in {places[0]}, a testbed needs {NEEDED_BYTES // 1024**2}:"
            " make room, or set TMPDIR to another disk"
        )
    made = Path(tempfile.mkdtemp(prefix="rideout-", dir=places[0]))
    made.chmod(0o711)
    return made
