from __future__ import annotations

import math

import numpy as np
import pytest

from scarlet.arrays import Labels
from scarlet.errors import ConfigError
from scarlet.methods.parts.mean import mean
from scarlet.protocol.cache import Duration, NoCache
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.method import Everything, Method, nothing
from scarlet.protocol.uplink.labels import SoftLabels
from scarlet.rng import draw, stream


def test_what_a_method_does_not_name_is_as_in_plain_federated_distillation() -> None:
    method = Method(mean())
    assert method.downlink == Shared(NoCache(), teach="aggregate", teachers=None, choose=None)
    assert method.uplink == SoftLabels()
    assert method.select is draw
    assert (method.distil_weight, method.restart, method.server_learns, method.uses_public) == (1, False, True, True)
    assert (method.uplink_bits, method.downlink_bits) == (None, None)
    labels = Labels(np.arange(3), np.eye(3, dtype=np.float32))
    assert Everything()(labels, {}) is labels


def test_a_round_about_no_sample_uses_no_public_data() -> None:
    assert not Method(mean(), select=nothing).uses_public
    assert nothing(stream(0, "server"), 100, 10).tolist() == []


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_of_distillation_that_is_none_is_a_config_error(weight: float) -> None:
    with pytest.raises(ConfigError, match=rf"^distil_weight must be more than 0, got {weight}; the paper uses 1$"):
        Method(mean(), distil_weight=weight)


def test_a_cache_where_no_labels_are_sent_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"^a cache is of soft-labels, and this method sends none; [^\n]+$"):
        Method(mean(), select=nothing, downlink=Shared(Duration(3)))
