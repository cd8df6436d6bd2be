from __future__ import annotations

import multiprocessing
import resource

import torch

from scarlet.training.freed_memory import keep_freed_memory


def _faults(keep: bool) -> int:
    """Page faults of blocks of 4, 5, ... 24 MB, each freed before the next is allocated."""
    torch.set_num_threads(1)
    if keep:
        keep_freed_memory()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for megabytes in range(4, 25):
        torch.ones(megabytes << 18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_memory_that_is_kept_is_not_mapped_again() -> None:
    faults = {}
    for keep in (True, False):  # each in a process of its own, because the setting cannot be undone
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            faults[keep] = pool.apply(_faults, (keep,))
    pages = [megabytes << 8 for megabytes in range(4, 25)]
    # How many pages are new depends on where free blocks lie: 0.15 to 0.31 of all were seen.
    assert faults[True] < sum(pages) / 2, "where a larger block replaces a smaller one, only the difference is new"
    # glibc maps a block that is larger than all blocks freed so far on its own.
    assert faults[False] > 0.9 * sum(pages), "without the setting nothing would have been mapped again either"
