"""The weighted mean of the clients' models (FedAvg)."""

from __future__ import annotations

import numpy as np

from scarlet.errors import MessageError
from scarlet.protocol.types import Parameters, Values

# Numbers are summed as whole ones and as integers of 2^-30 for the rest, because integer addition gives the same sum in
# every order of arrival. In one integer of 63 bits there would be no room for what batch normalisation counts.
_SCALE = float(2**30)


class AverageOfModels:
    """w = sum_k n_k w_k / sum_k n_k, with n_k the samples that client k trained on. Memory: O(M), whatever the clients.

    Buffers of batch normalisation are averaged like weights.
    """

    def __init__(self, numbers: int, clients: int) -> None:
        self._whole, self._rest = np.zeros(numbers, np.int64), np.zeros(numbers, np.int64)
        self._samples = 0
        # So large that even the sum of all clients fits into 63 bits.
        self._limit = 2.0**62 / max(1, clients)

    def add(self, message: Parameters) -> None:
        """Add a client's model, or raise MessageError if it is not one."""
        who, value = f"client {message.client}", message.value
        if len(value) != len(self._whole):
            raise MessageError(f"{who} sends {len(value)} numbers, not {len(self._whole)}", "wrong shape")
        if message.samples < 1:
            raise MessageError(f"{who} says that it trained on no sample", "wrong shape")
        with np.errstate(invalid="ignore"):  # what is not a number is turned down below
            weighted = value.astype(np.float64) * message.samples
        if not (np.abs(weighted) <= self._limit).all():  # NaN is not, either
            raise MessageError(
                f"{who} sends weights that are not finite, or too large; a smaller lr may keep them from diverging",
                "not finite",
            )
        whole = np.floor(weighted)
        self._whole += whole.astype(np.int64)
        self._rest += np.rint((weighted - whole) * _SCALE).astype(np.int64)
        self._samples += message.samples

    def finish(self) -> Values:
        """The mean, f32[M]."""
        total = self._whole + self._rest / _SCALE
        return np.asarray(total / max(1, self._samples), np.float32)
