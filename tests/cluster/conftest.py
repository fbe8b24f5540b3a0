"""One testbed for all tests here that leave it as they found it; the binaries are built before the clock runs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.testbed import Testbed, tools
from chaos.testbed.kube import Kube
from tests.cluster.helpers import LANES

HERE = Path(__file__).parent


def pytest_collection_finish(session: pytest.Session) -> None:
    """A cold build takes ten minutes, longer than any test may: it is not a part of one."""
    if any(HERE in item.path.parents for item in session.items) and not session.config.option.collectonly:
        tools.find_or_build(lambda line: print(line, flush=True))


@pytest.fixture(scope="session")
async def bed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Testbed]:
    """A testbed with the lanes buffered and tick, whose node runs every pod as processes."""
    async with Testbed.start(tmp_path_factory.mktemp("testbed"), LANES) as started:
        yield started


@pytest.fixture(scope="session")
async def admin(bed: Testbed) -> AsyncIterator[Kube]:
    async with Kube.open(bed.kubeconfig("admin")) as kube:
        yield kube


@pytest.fixture(scope="session")
async def dispatcher(bed: Testbed) -> AsyncIterator[Kube]:
    """The dispatcher's identity, through the proxy."""
    async with Kube.open(bed.kubeconfig("dispatcher"), user_agent="rideout-dispatcher/test") as kube:
        yield kube
