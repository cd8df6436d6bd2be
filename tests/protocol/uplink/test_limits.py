"""The server refuses what is longer than any answer: the limit is that of a whole answer, and not a byte more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scarlet.arrays import Labels
from scarlet.methods.cfd import CfdConfig, cfd
from scarlet.methods.fedavg import FedavgConfig, fedavg
from scarlet.methods.individual import IndividualConfig, individual
from scarlet.methods.scarlet import ScarletConfig, scarlet
from scarlet.protocol.codec import Context
from scarlet.protocol.messages import Message
from scarlet.protocol.method import Method
from scarlet.protocol.slots import Round
from scarlet.protocol.uplink.delta import DeltaAnswer
from scarlet.protocol.uplink.labels import Answer
from scarlet.protocol.uplink.weights import Parameters
from tests.protocol.federation import AGREEMENT, Federation, Table, soft_labels

METHODS: dict[str, Method] = {
    "whole labels": scarlet(ScarletConfig()),
    "delta coding": cfd(CfdConfig(delta=True)),
    "weights": fedavg(FedavgConfig()),
    "nothing": individual(IndividualConfig()),
}


def largest(method: Method, request: list[int]) -> Message:
    """The longest honest answer: all labels are sent, and under delta coding the base is named for nothing."""
    index = np.array(request, np.int64)
    labels = Labels(index, soft_labels(0, 1, index))
    if method.uplink.message is Parameters:
        return Parameters(1, 0, 0, 9, np.zeros(AGREEMENT.public_size * AGREEMENT.classes, np.float32))
    if method.uplink.message is DeltaAnswer:
        return DeltaAnswer(1, 0, 0, labels, base=b"somename")
    return Answer(1, 0, 0, labels)


@pytest.mark.parametrize("bits", [1, 2, 7, 8, 23, 24, 32])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("request_size", [0, 1, 8])
def test_the_limit_is_the_size_of_the_largest_answer_and_1024_bytes_more_where_labels_are_coded(
    name: str, bits: int, request_size: int
) -> None:
    method = replace(METHODS[name], uplink_bits=bits)
    request = list(range(3, 3 + request_size))
    for coding, slack in (("reference", 0), ("compact", 1024)):
        federation = Federation(method, learner=Table(), coding=coding)
        index = np.array(request, np.int64)
        now = Round(1, 0, index, index, frozenset(range(4)))
        answers = method.uplink.server(method.aggregate, AGREEMENT, federation.codec).open(now, Table())
        data = federation.codec.encode(largest(method, request), Context(index))
        if coding == "reference":
            assert answers.limit == len(data)
            plain = len(data)
        assert answers.limit == plain + slack
        assert len(data) <= answers.limit
