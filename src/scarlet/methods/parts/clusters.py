"""How the clients' soft-labels of a sample become several teachers, and a client takes one of them (COMET)."""

from __future__ import annotations

import numpy as np

from scarlet.arrays import Index, Labels, Values
from scarlet.errors import ConfigError
from scarlet.methods.parts.kmeans import cluster
from scarlet.methods.parts.mean import mean
from scarlet.protocol.aggregation import Aggregate, Aggregation, Teachers


def clustered(clusters: int, starts: int) -> Aggregate:
    """For each sample the centres of `clusters` clusters of the answers; clusters=1: the plain mean."""
    if clusters < 1:
        raise ConfigError(f"clusters must be 1 or more, got {clusters}; the paper uses 2 and 3")
    if starts < 1:
        raise ConfigError(f"starts must be 1 or more, got {starts}; 4 are usual")
    return lambda request, classes: _Clustered(request, classes, clusters, starts)


def nearest(teachers: Labels, own: Values) -> Labels:
    """For each sample the teacher c that is nearest to the client's own soft-label: argmin_c ||s_c - z||_2."""
    distance = ((teachers.value - own[:, np.newaxis]) ** 2).sum(axis=2)
    return Labels(teachers.index, teachers.value[np.arange(len(own)), distance.argmin(axis=1)])


class _Clustered(Aggregation):
    """It must gather all answers: memory is O(clients x |I_req| x N)."""

    def __init__(self, request: Index, classes: int, clusters: int, starts: int) -> None:
        self._request = request
        self._classes = classes
        self._clusters = clusters
        self._starts = starts
        self._answers: dict[int, Labels] = {}

    def add(self, client: int, labels: Labels) -> None:
        self._answers[client] = labels

    def finish(self) -> Teachers:
        clients = sorted(self._answers)  # k-means must not depend on who answered first
        shape = (len(self._request), len(clients))
        points = np.zeros((*shape, self._classes), np.float32)
        present = np.zeros(shape, np.bool_)
        plain = mean()(self._request, self._classes)
        for column, client in enumerate(clients):
            labels = self._answers[client]
            row = np.searchsorted(self._request, labels.index)
            points[row, column], present[row, column] = labels.value, True
            plain.add(client, labels)
        average = plain.finish()
        answered = present.any(axis=1)
        found = cluster(points[answered], present[answered], self._clusters, self._starts)
        choice = {client: found.member[:, column] for column, client in enumerate(clients)}
        return Teachers(average.index, found.centre, average.value, choice)
