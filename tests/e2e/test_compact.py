"""Runs under the compact codec."""

from __future__ import annotations

from dataclasses import replace

import pytest

import scarlet
from tests.e2e.test_learning import SHORT

SMALL = replace(SHORT, rounds=3, samples_per_client=40, public_size=80, public_per_round=40, local_epochs=1, workers=1)
METHODS = {
    "scarlet": scarlet.ScarletConfig(cache_duration=1),
    "dsfl": scarlet.DsflConfig(),
    "cfd, delta": scarlet.CfdConfig(downlink_bits=1, delta=True),
    "comet": scarlet.CometConfig(cache_duration=1),
    "comet, server-assigned": scarlet.CometConfig(assign="server"),
    "selective-fd": scarlet.SelectiveFdConfig(cache_duration=1),
    "fedavg": scarlet.FedavgConfig(),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_with_labels_as_fine_both_codecs_give_the_same_weights(method: object, participation: float) -> None:
    bits = 1 if isinstance(method, scarlet.CfdConfig) else 32
    config = replace(SMALL, participation=participation, clients=4, uplink_bits=bits, downlink_bits=bits)
    reference = scarlet.run(method, replace(config, codec="reference")).summary
    compact = scarlet.run(method, replace(config, codec="compact")).summary
    assert compact["weights_digest"] == reference["weights_digest"] is not None
    if not isinstance(method, scarlet.FedavgConfig):
        assert int(str(compact["cumulative_bytes"])) < int(str(reference["cumulative_bytes"]))
