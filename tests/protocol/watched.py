"""Every method with every kind of cache, and a federation whose rounds are checked against a loop over the answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Labels, Values
from scarlet.distributions import SUM_TOLERANCE
from scarlet.job import Job
from scarlet.methods.registry import METHODS
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.cache import ABSENT
from scarlet.protocol.downlink.personal import Personal
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.method import Method
from scarlet.protocol.server import ALL_CLIENTS, ClosedRound, Participation
from scarlet.protocol.uplink.weights import Weights
from tests.protocol.federation import (
    AGREEMENT,
    Federation,
    Knowing,
    Table,
    few_labels,
    same_labels,
    soft_labels,
    weights,
)

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
            found[f"{title}, {cache}" if cache else title] = Variant(replace(method, filter=Knowing()), literal)
    return found


class Watched:
    """A federation, and what each of its rounds must come to."""

    def __init__(
        self, variant: Variant, agreement: Agreement = AGREEMENT, participation: Participation = ALL_CLIENTS
    ) -> None:
        self.method, self.literal, self.agreement = variant.method, variant.literal, agreement
        self.model = Table(agreement)
        say = few_labels if (self.method.uplink_bits or 32) < 32 else soft_labels
        self.federation = Federation(self.method, agreement, participation, learner=self.model, say=say)
        self.mean: dict[int, Row] = {}  # sample -> the plain mean of its last answers
        self.taught: dict[int, Values] = {}  # sample -> the label that was taught of it last
        self.last: ClosedRound | None = None
        self.answers: dict[int, Labels] = {}  # of the last round, as the server heard them
        self.request = self.dropped = np.empty(0, np.int64)  # of the last round

    def round(self, known: Mapping[int, Collection[int]] | None = None) -> ClosedRound:
        """Play a round in which some clients answer only what they know, and check all that must be true of it."""
        federation = self.federation
        federation.know(known or {})
        federation.open()
        assert not federation.resyncs
        for job in federation.jobs:
            self._check_lesson(job)
        self.request = federation.jobs[0].request
        assert all(job.request.tolist() == self.request.tolist() for job in federation.jobs)
        self.answers = {job.client: self._heard(job) for job in federation.jobs}
        federation.take(federation.replies())
        closed = federation.close()
        assert (closed.answers, closed.resets, dict(closed.rejections)) == (federation.asked, 0, {})
        assert federation.counted() == federation.handed
        if self.method.uses_public:
            self._check_labels(closed)
        else:
            self._check_no_labels(closed)
        self.last = closed
        return closed

    def _heard(self, job: Job) -> Labels:
        prepared = self.federation.clients[job.client].state.prepared
        assert prepared is not None
        labels = self.method.filter(Labels(job.request, self.federation.result(job).value), prepared)
        return Labels(labels.index, self.federation.codec.decoded_by_server(labels.value))

    def _check_lesson(self, job: Job) -> None:
        """A client that was sent the round's downlink is taught what the server taught, and holds what it holds."""
        if isinstance(self.method.uplink, Weights):
            assert job.parameters is not None
            assert job.parameters.tobytes() == self.model.value.tobytes()
        else:
            assert job.parameters is None
        if self.last is None:
            assert len(job.teacher.index) == 0
            return
        taught = self.last.taught
        if isinstance(self.method.downlink, Personal):
            self._check_own_teacher(job, taught)
            return
        assert same_labels(job.teacher, taught)
        server, client = (
            side.state.downlink.cache for side in (self.federation.server, self.federation.clients[job.client])
        )
        held = server.stamp[taught.index] != ABSENT
        assert (client.stamp[taught.index] != ABSENT).tolist() == held.tolist()
        stored = taught.index[held]
        assert client.value[stored].tobytes() == server.value[stored].tobytes()
        assert (client.stamp[self.dropped] == ABSENT).all()

    def _check_own_teacher(self, job: Job, mean: Labels) -> None:
        """Where the server chooses: the centre nearest to the client's own answer, or the mean if it gave none."""
        lessons, own = self.federation.server.state.downlink.lessons, by_sample(self.answers.get(job.client))
        assert lessons is not None
        assert job.teacher.index.tolist() == mean.index.tolist()
        for teacher, centres, (sample, expected) in zip(
            job.teacher.value, lessons.value[:, :-1], by_sample(mean).items(), strict=True
        ):
            if sample in own:
                expected = centres[np.argmin([((centre - own[sample]) ** 2).sum() for centre in centres])]
            assert teacher.tolist() == expected.tolist()

    def _check_labels(self, closed: ClosedRound) -> None:
        downlink, codec, learned = self.method.downlink, self.federation.codec, self.model.learned
        taught, fresh = by_sample(closed.taught), self._fresh()
        self.dropped = np.array([sample for sample in self.request.tolist() if sample not in fresh], np.int64)
        assert not set(self.dropped.tolist()) & set(taught)
        values = [closed.taught.value]
        if isinstance(downlink, Shared):
            cache = self.federation.server.state.downlink.cache
            assert (cache.stamp[self.dropped] == ABSENT).all()
            values.append(cache.value[cache.stamp != ABSENT])
        for value in values:
            assert (value >= 0).all()
            assert (abs(value.sum(axis=-1, dtype=np.float64) - 1) <= SUM_TOLERANCE).all()

        assert learned is not None
        assert set(fresh) <= set(taught)
        assert learned.index.tolist() == sorted(taught)
        for sample, label, lesson in zip(taught, taught.values(), learned.value, strict=True):
            if sample not in fresh:
                assert sample not in self.request
                assert label.tobytes() == self.taught[sample].tobytes()
            elif isinstance(downlink, Shared) and downlink.teach == "model":
                own = codec.decoded_by_clients(self.model.predict(np.array([sample])))
                assert label.tobytes() == own.tobytes()
            elif downlink.teachers is None:
                assert near(label, fresh[sample])
            elif isinstance(downlink, Shared):
                self._check_centres(sample, label)
            if isinstance(downlink, Shared) and not downlink.has_targets:
                assert label.tobytes() == lesson.tobytes()
            else:
                assert near(lesson, self.mean[sample])
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
        assert self.federation.ledger.round_total("catch_up").size == 0
        if isinstance(self.method.uplink, Weights):
            models = {job.client: weights(job.client, job.round, self.model.value.size) for job in self.federation.jobs}
            total = np.sum([(1 + client) * model.astype(np.float64) for client, model in models.items()], axis=0)
            assert near(self.model.value.ravel(), total / sum(1 + client for client in models))
        else:
            assert self.federation.ledger.round_total("uplink").payload == 0
            assert self.federation.ledger.round_total("downlink").payload == 0


def by_sample(labels: Labels | None) -> dict[int, Values]:
    return {} if labels is None else dict(zip(labels.index.tolist(), labels.value, strict=True))


def near(value: Values, expected: Row) -> bool:
    return bool(np.allclose(value, expected, rtol=0, atol=ROUNDING))
