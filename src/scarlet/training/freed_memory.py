"""How this process hands memory back to the operating system."""

from __future__ import annotations

import ctypes

_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD, _MXFAST = -3, -1, -2, 1  # mallopt(3)


def keep_freed_memory() -> None:
    """Let this process keep freed blocks of up to 32 MB for the next batch.

    By default glibc returns the larger blocks to the operating system after every batch, and each of their pages is
    zeroed and mapped again: 80,000 page faults for 500 images of resnet20, a tenth of the time. Without glibc the
    function does nothing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_MMAP_THRESHOLD, 32 << 20)
    mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
    mallopt(_TOP_PAD, 64 << 20)
    mallopt(_MXFAST, 0)  # glibc would merge the small blocks of its fast bins each time a large block is freed
