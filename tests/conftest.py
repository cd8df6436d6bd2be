"""Two test processes share two cores: a second thread in each would only wait for the others."""

from __future__ import annotations

import gc
import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by NumPy, scikit-learn and torch when they are first imported


def pytest_collection_finish(session: pytest.Session) -> None:
    """What the modules made when they were loaded stays for good: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _fork_server_with_all_of_torch() -> None:
    """The first run may need none of torch's compiler, and the fork server that it starts serves all later ones."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        from scarlet.transport import worker

        worker.PRELOADED.append("torch._dynamo")
