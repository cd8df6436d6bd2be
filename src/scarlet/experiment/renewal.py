"""When a page about something that goes on is written anew."""

from __future__ import annotations

import time
from collections.abc import Callable

APART = 10.0  # seconds between two pages, at least
SHARE = 0.01  # of the time, that writing pages may take


class Renewal:
    """Does something now and then, for at most a hundredth of the time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = clock() + 2 * APART  # the first page is the dearest: what makes it must be loaded

    def renew(self, write: Callable[[], None]) -> None:
        """Do it, if it is due."""
        began = self._clock()
        if began < self._due:
            return
        write()
        ended = self._clock()
        self._due = ended + max(APART, (ended - began) / SHARE)
