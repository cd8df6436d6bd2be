"""Datasets, their partition among clients, and their files."""

from scarlet.data.datasets import (
    DATASETS,
    Augment,
    Info,
    PrivateSet,
    default_data_dir,
    info,
    load_private,
    load_public,
)
from scarlet.data.fetch import Present, get, present
from scarlet.data.figure import partition_figure
from scarlet.data.partition import class_counts, partition, split_test

__all__ = [
    "DATASETS",
    "Augment",
    "Info",
    "Present",
    "PrivateSet",
    "class_counts",
    "default_data_dir",
    "get",
    "info",
    "load_private",
    "load_public",
    "partition",
    "partition_figure",
    "present",
    "split_test",
]
