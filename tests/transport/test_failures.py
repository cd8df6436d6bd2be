"""One client that fails is a Failure, and the others are not disturbed by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from scarlet.arrays import Images, Labels
from scarlet.data.federated import FederatedData
from scarlet.protocol.method import Method, Prepared
from scarlet.transport.transport import Failure
from tests.transport.five_clients import AGREEMENT, EVERYBODY, METHOD, data, exchanged, server, transport

WHO = 3  # the client that fails

each_number_of_workers = pytest.mark.parametrize("workers", [1, 2])


def with_a_wrong_label() -> FederatedData:
    """A sample of the client has a class that its model does not know."""
    given = data()
    labels = given.private.train_labels.copy()
    labels[given.train[WHO][0]] = 99
    return replace(given, private=replace(given.private, train_labels=labels))


@dataclass(frozen=True, slots=True)
class Refuses:
    """A filter that fails for one client: while it prepares, or later."""

    prepares: bool

    def prepare(self, private: Images, public: Images, rng: np.random.Generator) -> Prepared:
        broken = np.array_equal(private, data().private.train_images[data().train[WHO]])
        if broken and not self.prepares:
            raise ValueError("these images\ncannot be looked at")
        return {"broken": np.array(broken)}

    def __call__(self, labels: Labels, prepared: Prepared) -> Labels:
        if prepared["broken"]:
            raise ValueError("these labels\ncannot be looked at")
        return labels


def refuses_to_prepare() -> Method:
    return replace(METHOD(), filter=Refuses(prepares=False))


def refuses_to_filter() -> Method:
    return replace(METHOD(), filter=Refuses(prepares=True))


def outcome(workers: int, downlinks: dict[int, bytes], images: FederatedData | None = None, **changes: Any) -> Any:
    """Who answers, and why the others fail; they are asked twice, because a failure must not be the end of a client."""
    with transport(workers, images, **changes) as clients:
        first, second = (exchanged(clients, downlinks) for _ in range(2))
    failed = {sender: answer for sender, answer in second if isinstance(answer, Failure)}
    assert len(first) == len(second) and {sender for sender, _ in first} == {sender for sender, _ in second}
    assert set(EVERYBODY) == {sender for sender, _ in second}
    assert all(failure.trace.startswith("Traceback") for failure in failed.values())
    return {sender: failure.reason for sender, failure in failed.items()}


@each_number_of_workers
def test_a_client_whose_training_raises(workers: int) -> None:
    failed = outcome(workers, server().open_round(), with_a_wrong_label())
    assert failed == {WHO: "IndexError: Target 99 is out of bounds."}


@each_number_of_workers
def test_clients_that_are_trained_together_fail_together(workers: int) -> None:
    failed = outcome(workers, server().open_round(), with_a_wrong_label(), clients_at_once=2)
    assert set(failed) == ({2, 3} if workers == 1 else {1, 3}) and len(set(failed.values())) == 1


@pytest.mark.parametrize(("workers", "at_once"), [(1, None), (2, None), (1, 5)])
@pytest.mark.parametrize(
    ("method", "what"), [(refuses_to_prepare, "images"), (refuses_to_filter, "labels")], ids=["prepare", "filter"]
)
def test_a_client_whose_filter_raises(
    workers: int, method: Callable[[], Method], what: str, at_once: int | None
) -> None:
    failed = outcome(workers, server().open_round(), method=method, clients_at_once=at_once)
    assert failed == {WHO: f"ValueError: these {what}"}, "a reason is one line"


@each_number_of_workers
def test_a_client_whose_downlink_was_corrupted(workers: int) -> None:
    downlinks = server().open_round()
    downlinks[WHO] = downlinks[WHO][:-1] + bytes([downlinks[WHO][-1] ^ 1])
    failed = outcome(workers, downlinks)
    assert set(failed) == {WHO} and "checksum" in failed[WHO]


@each_number_of_workers
def test_clients_that_hold_another_public_dataset_than_the_server(workers: int) -> None:
    failed = outcome(workers, server().open_round(), agreement=replace(AGREEMENT, public=b"8 others"))
    assert set(failed) == set(EVERYBODY)
    assert all("holds another public dataset" in reason for reason in failed.values())
