"""MLflow: a run of the experiment `scarlet` in the store sqlite:///DIR/mlflow.db.

In a comparison DIR is the directory of the comparison, and the runs are named for their own directories. See them with
`mlflow ui --backend-store-uri sqlite:///DIR/mlflow.db`. MLflow refuses its older store of plain files, mlruns.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from scarlet.trackers.tracker import Ending, Numbers, Place, numbers

_STATUS: dict[Ending, str] = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
_PARAMS = 100  # at most in one call


class Run:
    """Metrics by round, options as parameters; of the summary numbers are metrics, and words are tags."""

    def __init__(self, place: Place, options: Mapping[str, object], before: Sequence[Numbers]) -> None:
        with _quiet():
            self._client = MlflowClient(tracking_uri=f"sqlite:///{(place.shared / 'mlflow.db').absolute()}")
            experiment = self._experiment(place)
            known = self._known(experiment, place.name) if place.resumed else None
            kept = 0 if known is None else self._rounds_in(known)
            if known is not None and kept > len(before):  # a metric cannot be taken back
                self._client.delete_run(known)
                known, kept = None, 0
            self._run = known or self._client.create_run(experiment, run_name=place.name).info.run_id
            if known is None:
                params = [Param(_name(name), str(value)) for name, value in options.items()]
                for at in range(0, len(params), _PARAMS):
                    self._client.log_batch(self._run, params=params[at : at + _PARAMS])
            else:
                self._client.update_run(self._run, status="RUNNING")
            for round, values in enumerate(before[kept:], start=kept + 1):
                self.log(round, values, ())

    def log(self, round: int, numbers: Numbers, accuracies: Sequence[float]) -> None:
        now = int(time.time() * 1000)
        metrics = [Metric(_name(name), float(value), now, round) for name, value in numbers.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self, ending: Ending, rounds: int, summary: Mapping[str, object]) -> None:
        found = {f"summary/{name}": value for name, value in numbers(summary).items()}
        self.log(rounds, found, ())
        words = {f"summary/{name}": str(value) for name, value in summary.items()}
        tags = [RunTag(_name(name), value) for name, value in words.items() if name not in found]
        self._client.log_batch(self._run, tags=tags)
        self._client.set_terminated(self._run, status=_STATUS[ending])

    def _experiment(self, place: Place) -> str:
        found = self._client.get_experiment_by_name("scarlet")
        if found is not None:
            return str(found.experiment_id)
        artifacts = (place.shared / "mlartifacts").absolute().as_uri()
        return str(self._client.create_experiment("scarlet", artifact_location=artifacts))

    def _known(self, experiment: str, name: str) -> str | None:
        runs = self._client.search_runs([experiment])
        return next((str(run.info.run_id) for run in runs if run.info.run_name == name), None)

    def _rounds_in(self, run: str) -> int:
        return len(self._client.get_metric_history(run, "answers"))


def _name(name: str) -> str:
    """A name that MLflow admits."""
    return re.sub(r"[^/\w.\- :]", "_", name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep MLflow's remarks about new tables from the terminal."""
    logger = logging.getLogger("mlflow")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
