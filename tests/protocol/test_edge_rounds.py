"""Rounds at the edge, for every method: nothing but hits, nothing requested, and samples that nobody answers.

After each round the clients must hold what the server holds, and that must be what a loop over the answers gives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from scarlet.errors import MessageError
from scarlet.methods.registry import METHODS
from scarlet.protocol.cache import ABSENT, NoCache
from scarlet.protocol.check import SUM_TOLERANCE
from scarlet.protocol.federation import Federation
from scarlet.protocol.method import Method
from scarlet.protocol.server import ClosedRound
from scarlet.protocol.types import Job, Labels, Resync, Values
from scarlet.wire import frame
from tests.protocol.federation import FEDERATION, Knowing, Table, Town, few_labels, same_labels, soft_labels, weights

ALL = replace(FEDERATION, public_per_round=FEDERATION.public_size)
HALF = replace(FEDERATION, clients=5, participation=0.6, public_per_round=12)
SAMPLES = range(FEDERATION.public_size)
CLIENTS = range(FEDERATION.clients)
NOBODY: dict[int, Collection[int]] = dict.fromkeys(CLIENTS, ())
ROUNDING = 2e-6  # float32 against float64

Row = npt.NDArray[np.float64]
Literal = Callable[[Row], Row | None]

# The options of each variant; and what it teaches of a sample whose answers have a given mean (None: the sample is
# dropped), where that says all.
OPTIONS: dict[str, tuple[str, dict[str, object], Literal | None]] = {
    "SCARLET": ("scarlet", {"beta": 1.5, "cache_duration": 0}, lambda mean: mean**1.5 / (mean**1.5).sum()),
    "DS-FL": ("dsfl", {"temperature": 0.1}, lambda mean: np.exp(10 * mean) / np.exp(10 * mean).sum()),
    "CFD-1-32": ("cfd", {"uplink_bits": 1, "downlink_bits": 32}, None),
    "CFD-1-1": ("cfd", {"uplink_bits": 1, "downlink_bits": 1}, None),
    "CFD-4-4": ("cfd", {"uplink_bits": 4, "downlink_bits": 4}, None),
    "CFD-1-32 delta": ("cfd", {"uplink_bits": 1, "downlink_bits": 32, "delta": True}, None),
    "CFD-1-1 delta": ("cfd", {"uplink_bits": 1, "downlink_bits": 1, "delta": True}, None),
    "CFD-4-4 delta": ("cfd", {"uplink_bits": 4, "downlink_bits": 4, "delta": True}, None),
    "CFD-4-4 delta, fixed": ("cfd", {"uplink_bits": 4, "downlink_bits": 4, "delta": True, "subset": "fixed"}, None),
    "COMET of one teacher": ("comet", {"clusters": 1}, None),
    "COMET by clients": ("comet", {"clusters": 2, "assign": "client"}, None),
    "COMET by the server": ("comet", {"clusters": 2, "assign": "server"}, None),
    "Selective-FD": ("selective-fd", {}, lambda mean: mean),
    "Selective-FD, sure": ("selective-fd", {"tau_server": 0.8}, lambda mean: mean if mean.max() > 0.6 else None),
    "FedAvg": ("fedavg", {}, None),
    "Individual": ("individual", {}, None),
    "Centralized": ("centralized", {}, None),
}
NO_CACHE: dict[str, object] = {}
CACHES: dict[str, dict[str, object]] = {
    "D = 2, delete": {"cache_duration": 2, "on_expiry": "delete"},
    "D = 2, refresh": {"cache_duration": 2, "on_expiry": "refresh"},
    "D = 1000": {"cache_duration": 1000},
}


@dataclass(frozen=True)
class Variant:
    method: Method
    literal: Literal | None


def variants(*caches: str) -> dict[str, Variant]:
    """Every method without a cache, or every one that can have it with some."""
    found = {}
    for title, (name, options, literal) in OPTIONS.items():
        entry: Any = METHODS[name]
        cacheable = any(field.name == "cache_duration" for field in fields(entry.config))
        for cache in caches:
            if cache and (not cacheable or options.get("assign") == "server"):
                continue
            method = entry.build(entry.config(**options | CACHES.get(cache, {})))
            found[f"{title}, {cache}" if cache else title] = Variant(replace(method, answer=Knowing()), literal)
    return found


def each(cases: Mapping[str, Variant]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("variant", cases.values(), ids=cases)


def of_labels(cases: Mapping[str, Variant]) -> dict[str, Variant]:
    return {title: variant for title, variant in cases.items() if variant.method.exchange == "labels"}


EVERY = variants("", *CACHES)


class Watched:
    """A town, and what each of its rounds must come to."""

    def __init__(self, variant: Variant, federation: Federation = FEDERATION) -> None:
        self.method, self.literal, self.federation = variant.method, variant.literal, federation
        self.model = Table(federation)
        say = few_labels if (self.method.uplink_bits or 32) < 32 else soft_labels
        self.town = Town(self.method, federation, self.model, say)
        self.mean: dict[int, Row] = {}  # sample -> the plain mean of its last answers
        self.taught: dict[int, Values] = {}  # sample -> the label that was taught of it last
        self.last: ClosedRound | None = None
        self.answers: dict[int, Labels] = {}  # of the last round, as the server heard them
        self.request = self.dropped = np.empty(0, np.int64)  # of the last round

    def round(self, known: Mapping[int, Collection[int]] | None = None) -> ClosedRound:
        """Play a round in which some clients answer only what they know, and check all that must be true of it."""
        town = self.town
        town.know(known or {})
        town.open()
        assert not town.resyncs
        for job in town.jobs:
            self._check_lesson(job)
        self.request = town.jobs[0].request
        assert all(job.request.tolist() == self.request.tolist() for job in town.jobs)
        self.answers = {job.client: self._heard(job) for job in town.jobs}
        for reply in town.replies():
            town.server.take(*reply)
        closed = town.server.close_round()
        assert closed is not None
        assert (closed.answers, closed.resets, dict(closed.rejections)) == (self.federation.asked, 0, {})
        assert town.counted() == town.handed
        if self.method.exchange == "labels":
            self._check_labels(closed)
        else:
            self._check_no_labels(closed)
        self.last = closed
        return closed

    def _heard(self, job: Job) -> Labels:
        kept = self.town.clients[job.client].state.kept
        assert kept is not None
        said = self.town.say(job.client, job.round, job.request, self.federation.classes)
        labels = self.method.answer(Labels(job.request, said), kept)
        return Labels(labels.index, self.town.codec.heard_by_server(labels.value))

    def _check_lesson(self, job: Job) -> None:
        """A client that was sent the round's downlink is taught what the server taught, and holds what it holds."""
        if self.method.exchange == "weights":
            assert job.parameters is not None
            assert job.parameters.tobytes() == self.model.value.tobytes()
        else:
            assert job.parameters is None
        if self.last is None:
            assert len(job.teacher.index) == 0
            return
        taught = self.last.taught
        if self.method.personal:
            self._check_own_teacher(job, taught)
            return
        assert same_labels(job.teacher, taught)
        server, client = self.town.server.state.cache, self.town.clients[job.client].state.cache
        held = server.stamp[taught.index] != ABSENT
        assert (client.stamp[taught.index] != ABSENT).tolist() == held.tolist()
        stored = taught.index[held]
        assert client.value[stored].tobytes() == server.value[stored].tobytes()
        assert (client.stamp[self.dropped] == ABSENT).all()

    def _check_own_teacher(self, job: Job, mean: Labels) -> None:
        """Where the server chooses: the centre nearest to the client's own answer, or the mean if it gave none."""
        lessons, own = self.town.server.state.lessons, by_sample(self.answers.get(job.client))
        assert lessons is not None
        assert job.teacher.index.tolist() == mean.index.tolist()
        for teacher, centres, (sample, expected) in zip(
            job.teacher.value, lessons.value[:, :-1], by_sample(mean).items(), strict=True
        ):
            if sample in own:
                expected = centres[np.argmin([((centre - own[sample]) ** 2).sum() for centre in centres])]
            assert teacher.tolist() == expected.tolist()

    def _check_labels(self, closed: ClosedRound) -> None:
        state, codec, learned = self.town.server.state, self.town.codec, self.model.learned
        taught, fresh = by_sample(closed.taught), self._fresh()
        self.dropped = np.array([sample for sample in self.request.tolist() if sample not in fresh], np.int64)
        assert not set(self.dropped.tolist()) & set(taught)
        assert (state.cache.stamp[self.dropped] == ABSENT).all()
        for value in (closed.taught.value, state.cache.value[state.cache.stamp != ABSENT]):
            assert (value >= 0).all()
            assert (abs(value.sum(axis=-1, dtype=np.float64) - 1) <= SUM_TOLERANCE).all()

        assert learned is not None
        assert set(fresh) <= set(taught)
        assert learned.index.tolist() == sorted(taught)
        for sample, label, lesson in zip(taught, taught.values(), learned.value, strict=True):
            if sample not in fresh:
                assert sample not in self.request
                assert label.tobytes() == self.taught[sample].tobytes()
            elif self.method.teach == "model":
                own = codec.heard_by_clients(self.model.predict(np.array([sample])))
                assert label.tobytes() == own.tobytes()
            elif self.method.teachers is None:
                assert near(label, fresh[sample])
            elif not self.method.personal:
                self._check_centres(sample, label)
            assert near(lesson, self.mean[sample]) if self.method.keeps_targets else label.tobytes() == lesson.tobytes()
        self.taught |= taught

    def _check_centres(self, sample: int, centres: Values) -> None:
        """Each teacher is the mean of the answers that are nearest to it, or the copy of one that is."""
        said = [labels[sample] for labels in map(by_sample, self.answers.values()) if sample in labels]
        nearest = [int(np.argmin([((row - centre) ** 2).sum() for centre in centres])) for row in said]
        for number, centre in enumerate(centres):
            members = [row for row, choice in zip(said, nearest, strict=True) if choice == number]
            if members:
                assert near(centre, np.mean(members, axis=0, dtype=np.float64))
            else:
                assert centre.tolist() in [centres[choice].tolist() for choice in nearest]

    def _fresh(self) -> dict[int, Row]:
        """The label of each requested sample that somebody answered and that is to be taught, in a plain loop."""
        said, fresh = [by_sample(labels) for labels in self.answers.values()], {}
        for sample in self.request.tolist():
            rows = [labels[sample].astype(np.float64) for labels in said if sample in labels]
            if not rows:
                continue
            mean = np.sum(rows, axis=0) / len(rows)
            label = mean if self.literal is None else self.literal(mean)
            if label is not None:
                self.mean[sample], fresh[sample] = mean, label
        return fresh

    def _check_no_labels(self, closed: ClosedRound) -> None:
        assert len(self.request) == len(closed.taught.index) == 0
        assert closed.hit_ratio == 0
        assert self.model.learned is None
        assert self.town.ledger.round_total("catch_up").size == 0
        if self.method.exchange == "weights":
            models = {job.client: weights(job.client, job.round, self.model.value.size) for job in self.town.jobs}
            total = np.sum([(1 + client) * model.astype(np.float64) for client, model in models.items()], axis=0)
            assert near(self.model.value.ravel(), total / sum(1 + client for client in models))
        else:
            assert self.town.ledger.round_total("uplink").payload == 0
            assert self.town.ledger.round_total("downlink").payload == 0


def by_sample(labels: Labels | None) -> dict[int, Values]:
    return {} if labels is None else dict(zip(labels.index.tolist(), labels.value, strict=True))


def near(value: Values, expected: Row) -> bool:
    return bool(np.allclose(value, expected, rtol=0, atol=ROUNDING))


def test_every_registered_method_is_played() -> None:
    assert {name for name, _, _ in OPTIONS.values()} == set(METHODS)


@each(EVERY)
def test_rounds_of_random_samples_and_answers_come_to_what_a_plain_loop_makes_of_them(variant: Variant) -> None:
    """Half of the clients, each of which answers some samples, in every third round none."""
    town, rng = Watched(variant, HALF), np.random.default_rng(3)
    dropped = hits = 0
    for _ in range(12):
        share = rng.choice([0.2, 0.9, 1.0], HALF.clients) * (rng.random(HALF.clients) < 0.67)
        mask = rng.random((HALF.clients, HALF.public_size)) < share[:, np.newaxis]
        town.round({client: np.flatnonzero(known).tolist() for client, known in enumerate(mask)})
        dropped += len(town.dropped)
        hits += HALF.public_per_round - len(town.request)
    if variant.method.exchange == "labels":
        assert dropped > 5
        assert (hits > 10) == (lifetime(variant.method) > 0)


def lifetime(method: Method) -> int:
    """D, whatever codes what is taught."""
    policy = getattr(method.cache, "policy", method.cache)
    return 0 if isinstance(policy, NoCache) else int(policy.duration)


def teaching_all(cases: Mapping[str, Variant]) -> dict[str, Variant]:
    """Those that teach every sample that somebody answers."""
    return {title: variant for title, variant in of_labels(cases).items() if "sure" not in title}


@each(teaching_all(variants("D = 1000")))
def test_a_round_of_hits_only_asks_nothing_and_teaches_the_same_again(variant: Variant) -> None:
    town = Watched(variant, ALL)
    first = town.round()
    assert town.request.tolist() == list(SAMPLES)
    for _ in range(3):
        again = town.round()
        assert len(town.request) == 0
        assert again.hit_ratio == 1
        assert same_labels(again.taught, first.taught)
        assert all(len(labels.index) == 0 for labels in town.answers.values())


@each(teaching_all(EVERY))
def test_a_client_that_answers_nothing_is_counted_and_taught_like_the_others(variant: Variant) -> None:
    town = Watched(variant)
    for _ in range(5):
        closed = town.round({1: ()})
        assert len(town.answers[1].index) == 0
        assert len(closed.taught.index) > 0
    heard = town.town.clients[1].state.cache
    others = town.town.clients[2].state.cache
    assert (heard.stamp.tolist(), heard.value.tobytes()) == (others.stamp.tolist(), others.value.tobytes())


@each(teaching_all(EVERY))
def test_a_sample_that_nobody_answers_leaves_the_round_and_returns_when_somebody_does(variant: Variant) -> None:
    """In round 4 nobody knows some samples; the entries of round 1 have expired by then if D is 2."""
    town, lost = Watched(variant, ALL), {0, 5, 23}
    for _ in range(3):
        town.round()
    closed = town.round({client: set(SAMPLES) - lost for client in CLIENTS})
    expected: set[int] = set() if lifetime(variant.method) == 1000 else lost
    assert set(SAMPLES) - set(closed.taught.index.tolist()) == set(town.dropped.tolist()) == expected
    closed = town.round()
    assert expected <= set(town.request.tolist())
    assert closed.taught.index.tolist() == list(SAMPLES)
    town.round()


@each(of_labels(EVERY))
def test_a_round_in_which_nobody_answers_any_sample_teaches_what_was_held_and_harms_nothing(variant: Variant) -> None:
    town = Watched(variant)
    for known in (NOBODY, None, NOBODY, NOBODY, None, None):
        closed = town.round(known)
        if known is NOBODY:
            assert len(closed.taught.index) == FEDERATION.public_per_round - len(town.request)
            assert town.dropped.tolist() == town.request.tolist()
    assert len(closed.taught.index) > 0


@each(of_labels(variants("")))
def test_a_federation_that_never_answers_a_sample_never_teaches_any(variant: Variant) -> None:
    town = Watched(variant)
    for _ in range(3):
        assert len(town.round(NOBODY).taught.index) == 0
    assert not town.taught
    assert np.isnan(town.round(NOBODY).teacher_entropy)


@each({title: variant for title, variant in EVERY.items() if variant.method.delta})
def test_delta_coding_of_answers_changes_nothing_that_is_learned_or_taught(variant: Variant) -> None:
    coded, whole = Watched(variant), Watched(replace(variant, method=replace(variant.method, delta=False)))
    for _ in range(8):
        assert same_labels(coded.round().taught, whole.round().taught)
        assert coded.model.value.tobytes() == whole.model.value.tobytes()


@each(of_labels(EVERY) | {"FedAvg": EVERY["FedAvg"]})
def test_a_downlink_that_is_cut_between_two_of_its_messages_is_refused_or_healed(variant: Variant) -> None:
    """What is left looks whole, so the client must miss what goes with it; or it says that its cache differs."""
    watched = Watched(variant, HALF)
    for _ in range(4):
        watched.round()
    town, cuts = watched.town, 0
    for client, downlink in town.server.open_round().items():
        parts = frame.split(downlink)
        for kept in range(1, len(parts)):
            cuts += 1
            try:
                task = deepcopy(town.clients[client]).receive(b"".join(parts[:kept]))
            except MessageError:
                continue
            assert isinstance(task, list)
            assert isinstance(town.codec.decode(task[0]), Resync)
    method = variant.method
    if method.delta or method.personal or method.exchange == "weights":
        assert cuts >= HALF.asked
