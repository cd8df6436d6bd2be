"""Weights & Biases, offline: DIR/wandb/offline-run-TIME-ID. `wandb sync DIR/wandb/offline-run-*` uploads it.

Nothing here opens a connection or asks for a login, whatever WANDB_MODE says.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

import wandb

from scarlet.trackers.tracker import Ending, Numbers, Place


class Run:
    """History by round, options as the config, and the summary.

    An offline run cannot be reopened: a resumed run is written from its first round, under the same id, and replaces
    the earlier part.
    """

    def __init__(self, place: Place, options: Mapping[str, object], before: Sequence[Numbers]) -> None:
        earlier = sorted((place.run / "wandb").glob("offline-run-*/run-*.wandb")) if place.resumed else []
        self._run = wandb.init(
            project="scarlet",
            name=place.name,
            group=place.shared.absolute().name if place.shared != place.run else None,
            id=earlier[-1].stem.removeprefix("run-") if earlier else None,
            config=dict(options),
            dir=str(place.run),
            mode="offline",
            reinit="create_new",  # beside a run of the caller's own
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                disable_code=True,
                save_code=False,
                x_disable_meta=True,
                x_disable_stats=True,  # they would ask the cloud's metadata service
                x_disable_machine_info=True,
                x_save_requirements=False,
            ),
        )
        for round, values in enumerate(before, start=1):
            self.log(round, values, ())
        for file in earlier:
            shutil.rmtree(file.parent)

    def log(self, round: int, numbers: Numbers, accuracies: Sequence[float]) -> None:
        self._run.log(dict(numbers), step=round)

    def close(self, ending: Ending, rounds: int, summary: Mapping[str, object]) -> None:
        try:
            self._run.summary.update({f"summary/{name}": value for name, value in summary.items()})
        finally:
            self._run.finish(exit_code=0 if ending == "finished" else 1)
