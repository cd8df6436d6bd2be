from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _no_pictures() -> Iterator[None]:
    """Runs leave no page and no figure here: trackers have no part in them, and drawing takes longer than the runs."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("run_directory.write_page", "comparison.write_page", "run_directory.partition_figure"):
            patch.setattr(f"scarlet.experiment.{name}", lambda *_: None)
        yield
