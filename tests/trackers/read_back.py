"""What trackers hold of a run, read with their own libraries: name -> (round, value) in the order of writing."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Series = dict[str, list[tuple[int, float]]]
NAMES = ("tensorboard", "mlflow", "wandb")


def series(name: str, run: Path, shared: Path | None = None) -> Series:
    """Every number of a run by round, without the summary."""
    found = {
        "tensorboard": lambda: _tensorboard(run),
        "mlflow": lambda: mlflow_metrics(mlflow_run(run.name, shared or run), shared or run),
        "wandb": lambda: _wandb(run),
    }[name]()
    return {key: values for key, values in found.items() if not key.startswith("summary/")}


def events(run: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import HISTOGRAMS, SCALARS, EventAccumulator

    return EventAccumulator(str(run / "tensorboard"), size_guidance={SCALARS: 0, HISTOGRAMS: 0}).Reload()


def _tensorboard(run: Path) -> Series:
    found = events(run)
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def mlflow_client(shared: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{shared / 'mlflow.db'}")


def mlflow_runs(shared: Path) -> list[Any]:
    client = mlflow_client(shared)
    return list(client.search_runs([client.get_experiment_by_name("scarlet").experiment_id]))


def mlflow_run(name: str, shared: Path) -> Any:
    (found,) = (run for run in mlflow_runs(shared) if run.info.run_name == name)
    return found


def mlflow_metrics(run: Any, shared: Path) -> Series:
    client = mlflow_client(shared)
    return {
        key: [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, key)]
        for key in run.data.metrics
    }


def _wandb(run: Path) -> Series:
    found: Series = {}
    for record in wandb_records(run):
        if record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for key, value in items.items():
                if not key.startswith("_"):
                    found.setdefault(key, []).append((items["_step"], value))
    return found


def wandb_records(run: Path) -> list[Any]:
    """The records of the one offline run in a directory, by wandb's own protocol buffers."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # a run is finished a moment before the process that writes the file has written its end
    (file,) = (run / "wandb").glob("offline-run-*/*.wandb")
    return [Record.FromString(each) for each in _log_records(file.read_bytes())]


def _log_records(content: bytes) -> Iterator[bytes]:
    """The records of a log of LevelDB: blocks of 32 KiB, in which a record is whole (1) or in parts (2, 3, 4)."""
    at, parts = 7, b""  # after the header of the file
    while at < len(content):
        left = 32768 - at % 32768
        if left < 7:  # too little for another record
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""
