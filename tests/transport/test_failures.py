"""One client that fails is a Failure, and the others are not disturbed by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from scarlet.arrays import Inputs, Labels
from scarlet.data.federated import FederatedData
from scarlet.data.samples import Labelled, Part
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec import Codec
from scarlet.protocol.downlink.shared import Shared, SharedClient
from scarlet.protocol.method import Method, Prepared
from scarlet.transport.transport import Failure
from tests.transport.five_clients import AGREEMENT, EVERYBODY, METHOD, data, exchanged, server, shares, transport

WHO = 3  # the client that fails

each_number_of_workers = pytest.mark.parametrize("workers", [1, 2])


def with_a_wrong_label() -> FederatedData:
    """A sample of the client has a class that its model does not know."""
    given = data()
    inputs, labels = given.train[WHO].arrays()
    labels[0] = 99
    return replace(given, train=[*given.train[:WHO], Part(Labelled(inputs, labels)), *given.train[WHO + 1 :]])


@dataclass(frozen=True, slots=True)
class Refuses:
    """A filter that fails for one client: while it prepares, or later."""

    prepares: bool

    def prepare(self, private: Inputs, public: Inputs, rng: np.random.Generator) -> Prepared:
        broken = np.array_equal(private, data().train[WHO].arrays().inputs)
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
def test_clients_whose_weights_are_not_those_of_their_model(workers: int) -> None:
    failed = outcome(workers, server().open_round(), weights={})
    assert failed == dict.fromkeys(EVERYBODY, "RuntimeError: Error(s) in loading state_dict for Sequential:")


@each_number_of_workers
def test_a_client_whose_training_raises(workers: int) -> None:
    failed = outcome(workers, server().open_round(), with_a_wrong_label())
    assert failed == {WHO: "IndexError: Target 99 is out of bounds."}


@each_number_of_workers
def test_clients_that_are_trained_together_with_one_that_raises_answer_all_the_same(workers: int) -> None:
    failed = outcome(workers, server().open_round(), with_a_wrong_label(), clients_at_once=2)
    assert failed == {WHO: "RuntimeError: index 99 is out of bounds for dimension 2 with size 3"}


class OutOfMemory:
    """Images of which nobody can take those of one client."""

    def __init__(self, images: Inputs) -> None:
        self.images, self.shape, self.dtype, self.itemsize = images, images.shape, images.dtype, images.itemsize

    def __getitem__(self, index: Any) -> Any:
        places = data().train[WHO].index
        if places is not None and np.array_equal(index, places):
            raise MemoryError("no room for these images")
        return self.images[index]


def test_a_client_that_cannot_be_made() -> None:
    given = data()
    inputs, labels = given.train[0].of
    pool = Labelled(OutOfMemory(inputs), labels)  # type: ignore[arg-type]
    failed = outcome(1, server().open_round(), replace(given, train=shares(pool)))
    assert failed == {WHO: "MemoryError: no room for these images"}


class Unteachable(SharedClient):
    """The side of a client that fails where it is taught."""

    def apply(self, received: Any) -> Labels:
        raise ValueError("this cannot be taught")


def cannot_be_taught() -> Method:
    return replace(METHOD(), downlink=UnteachableDownlink(METHOD().downlink.policy))


class UnteachableDownlink(Shared):
    def client(self, agreement: Agreement, codec: Codec) -> SharedClient:
        return Unteachable(agreement, codec)


@each_number_of_workers
def test_clients_whose_method_raises_when_they_are_taught(workers: int) -> None:
    failed = outcome(workers, server().open_round(), method=cannot_be_taught)
    assert failed == dict.fromkeys(EVERYBODY, "ValueError: this cannot be taught")


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
    assert failed == {WHO: "MessageError: unreadable"}


@each_number_of_workers
@pytest.mark.parametrize(
    "other",
    [{"public": "that of others"}, {"method": "another"}, {"rounds": 7}, {"nonce": "an experiment of its own"}],
    ids=lambda other: next(iter(other)),
)
def test_clients_of_another_experiment_than_the_servers(workers: int, other: dict[str, Any]) -> None:
    failed = outcome(workers, server().open_round(), agreement=replace(AGREEMENT, **other))
    assert failed == dict.fromkeys(EVERYBODY, "MessageError: other experiment"), "counted under one reason"
