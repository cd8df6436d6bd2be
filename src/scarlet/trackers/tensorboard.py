"""TensorBoard: event files in DIR/tensorboard. See them with `tensorboard --logdir DIR`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from scarlet.trackers.tracker import Ending, Numbers, Place, numbers

_SHOWN = ("server_accuracy", "client_accuracy", "cumulative_bytes")  # in the table of hyperparameters: the last values


class Run:
    """Scalars, the clients' accuracies as a histogram, options as hyperparameters.

    Scalars are rounded to float32: TensorBoard's data server shows none of double precision. Readers differ in how
    they hide rounds that are written again, so a resumed run copies the events of the rounds that stand into a new
    file, which replaces the earlier ones.
    """

    def __init__(self, place: Place, options: Mapping[str, object], before: Sequence[Numbers]) -> None:
        folder = place.run / "tensorboard"
        files = sorted(folder.glob("events.out.tfevents.*")) if place.resumed else []
        events = [event for file in files for event in LegacyEventFileLoader(str(file)).Load() if event.step > 0]
        there = {event.step for event in events for value in event.summary.value if value.tag == "answers"}
        kept = next(round for round in range(len(before) + 1) if round == len(before) or round + 1 not in there)
        self._writer = SummaryWriter(str(folder))
        plain = {name: value if isinstance(value, int | float | str) else str(value) for name, value in options.items()}
        for summary in hparams(plain, dict.fromkeys(_SHOWN, 0.0)):
            self._writer.file_writer.add_summary(summary)  # at step 0
        for event in events:
            if event.step <= kept:
                self._writer.file_writer.add_event(event, event.step, event.wall_time)
        for round, values in enumerate(before[kept:], start=kept + 1):
            self.log(round, values, ())
        self._writer.flush()
        for file in files:
            file.unlink()

    def log(self, round: int, numbers: Numbers, accuracies: Sequence[float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)
        if accuracies:
            self._writer.add_histogram("accuracy_of_clients", np.asarray(accuracies), round)
        self._writer.flush()  # on disk before the round's checkpoint is

    def close(self, ending: Ending, rounds: int, summary: Mapping[str, object]) -> None:
        try:
            if summary:
                self.log(rounds, {f"summary/{name}": value for name, value in numbers(summary).items()}, ())
                self._writer.add_text("summary", f"```json\n{json.dumps(summary, indent=2)}\n```", rounds)
        finally:
            self._writer.close()
