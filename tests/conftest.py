"""Two test processes share two cores: a second thread in each would only wait for the others."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by NumPy, scikit-learn and torch when they are first imported
