"""Rounds at the edge, for every method: nothing but hits, nothing requested, and samples that nobody answers.

After each round the clients must hold what the server holds, and that must be what a loop over the answers gives.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from scarlet.errors import MessageError
from scarlet.methods.registry import METHODS
from scarlet.protocol.downlink.personal import Personal
from scarlet.protocol.messages import Resync
from scarlet.protocol.method import Method
from scarlet.protocol.server import Participation
from scarlet.protocol.uplink.delta import DeltaLabels
from scarlet.protocol.uplink.labels import SoftLabels
from scarlet.protocol.uplink.weights import Weights
from scarlet.wire import frame
from tests.protocol.federation import AGREEMENT, contents, same_labels
from tests.protocol.watched import CACHES, OPTIONS, Variant, Watched, variants

ALL = replace(AGREEMENT, public_per_round=AGREEMENT.public_size)
FIVE = replace(AGREEMENT, clients=5, public_per_round=12)
HALF = Participation(0.6)
SAMPLES = range(AGREEMENT.public_size)
CLIENTS = range(AGREEMENT.clients)
NOBODY: dict[int, Collection[int]] = dict.fromkeys(CLIENTS, ())


def each(cases: Mapping[str, Variant]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("variant", cases.values(), ids=cases)


def of_labels(cases: Mapping[str, Variant]) -> dict[str, Variant]:
    return {title: variant for title, variant in cases.items() if variant.method.uses_public}


EVERY = variants("", *CACHES)


def test_every_registered_method_is_played() -> None:
    assert {name for name, _, _ in OPTIONS.values()} == set(METHODS)


@each(EVERY)
def test_rounds_of_random_samples_and_answers_come_to_what_a_plain_loop_makes_of_them(variant: Variant) -> None:
    """Half of the clients, each of which answers some samples, in every third round none."""
    watched, rng = Watched(variant, FIVE, HALF), np.random.default_rng(3)
    dropped = hits = 0
    for _ in range(12):
        share = rng.choice([0.2, 0.9, 1.0], FIVE.clients) * (rng.random(FIVE.clients) < 0.67)
        mask = rng.random((FIVE.clients, FIVE.public_size)) < share[:, np.newaxis]
        watched.round({client: np.flatnonzero(known).tolist() for client, known in enumerate(mask)})
        dropped += len(watched.dropped)
        hits += FIVE.public_per_round - len(watched.request)
    if variant.method.uses_public:
        assert dropped > 5
        assert (hits > 10) == (lifetime(variant.method) > 0)


def lifetime(method: Method) -> int:
    """D of the policy that decides on stamps."""
    return method.downlink.policy.stamping.duration


def teaching_all(cases: Mapping[str, Variant]) -> dict[str, Variant]:
    """Those that teach every sample that somebody answers."""
    return {title: variant for title, variant in of_labels(cases).items() if "sure" not in title}


@each(teaching_all(variants("D = 1000")))
def test_a_round_of_hits_only_asks_nothing_and_teaches_the_same_again(variant: Variant) -> None:
    watched = Watched(variant, ALL)
    first = watched.round()
    assert watched.request.tolist() == list(SAMPLES)
    for _ in range(3):
        again = watched.round()
        assert len(watched.request) == 0
        assert again.hit_ratio == 1
        assert same_labels(again.taught, first.taught)
        assert all(len(labels.index) == 0 for labels in watched.answers.values())


@each(teaching_all(EVERY))
def test_a_client_that_answers_nothing_is_counted_and_taught_like_the_others(variant: Variant) -> None:
    watched = Watched(variant)
    for _ in range(5):
        closed = watched.round({1: ()})
        assert len(watched.answers[1].index) == 0
        assert len(closed.taught.index) > 0
    heard, others = (watched.federation.clients[client].state.downlink for client in (1, 2))
    assert contents(heard) == contents(others)


@each(teaching_all(EVERY))
def test_a_sample_that_nobody_answers_leaves_the_round_and_returns_when_somebody_does(variant: Variant) -> None:
    """In round 4 nobody knows some samples; the entries of round 1 have expired by then if D is 2."""
    watched, lost = Watched(variant, ALL), {0, 5, 23}
    for _ in range(3):
        watched.round()
    closed = watched.round({client: set(SAMPLES) - lost for client in CLIENTS})
    expected: set[int] = set() if lifetime(variant.method) == 1000 else lost
    assert set(SAMPLES) - set(closed.taught.index.tolist()) == set(watched.dropped.tolist()) == expected
    closed = watched.round()
    assert expected <= set(watched.request.tolist())
    assert closed.taught.index.tolist() == list(SAMPLES)
    watched.round()


@each(of_labels(EVERY))
def test_a_round_in_which_nobody_answers_any_sample_teaches_what_was_held_and_harms_nothing(variant: Variant) -> None:
    watched = Watched(variant)
    for known in (NOBODY, None, NOBODY, NOBODY, None, None):
        closed = watched.round(known)
        if known is NOBODY:
            assert len(closed.taught.index) == AGREEMENT.public_per_round - len(watched.request)
            assert watched.dropped.tolist() == watched.request.tolist()
    assert len(closed.taught.index) > 0


@each(of_labels(variants("")))
def test_a_federation_that_never_answers_a_sample_never_teaches_any(variant: Variant) -> None:
    watched = Watched(variant)
    for _ in range(3):
        assert len(watched.round(NOBODY).taught.index) == 0
    assert not watched.taught
    assert np.isnan(watched.round(NOBODY).teacher_entropy)


@each({title: variant for title, variant in EVERY.items() if isinstance(variant.method.uplink, DeltaLabels)})
def test_delta_coding_of_answers_changes_nothing_that_is_learned_or_taught(variant: Variant) -> None:
    coded, whole = Watched(variant), Watched(replace(variant, method=replace(variant.method, uplink=SoftLabels())))
    for _ in range(8):
        assert same_labels(coded.round().taught, whole.round().taught)
        assert coded.model.value.tobytes() == whole.model.value.tobytes()


@each(of_labels(EVERY) | {"FedAvg": EVERY["FedAvg"]})
def test_a_downlink_that_is_cut_between_two_of_its_messages_is_refused_or_healed(variant: Variant) -> None:
    """What is left looks whole, so the client must miss what goes with it; or it says that its cache differs."""
    watched = Watched(variant, FIVE, HALF)
    for _ in range(4):
        watched.round()
    federation, cuts = watched.federation, 0
    for client, downlink in federation.server.open_round().items():
        parts = frame.split(downlink)
        for kept in range(1, len(parts)):
            cuts += 1
            try:
                task = deepcopy(federation.clients[client]).receive(b"".join(parts[:kept]))
            except MessageError:
                continue
            assert isinstance(task, list)
            assert isinstance(federation.codec.decode(task[0]), Resync)
    if isinstance(variant.method.uplink, DeltaLabels | Weights) or isinstance(variant.method.downlink, Personal):
        assert cuts >= federation.asked
