"""Who holds which images: the private partition, and each client's share of the test split."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from scarlet.arrays import Index, Integers, Mask
from scarlet.data.inputs import as_part
from scarlet.data.samples import Part
from scarlet.data.sites import Site
from scarlet.errors import ConfigError
from scarlet.rng import stream

Floats = npt.NDArray[np.float64]


def partition(
    labels: Integers, clients: int, alpha: float, rng: Generator, per_client: int | None = None, *, shared: bool = False
) -> list[Index]:
    """Client-inner Dirichlet partition without replacement: `per_client` images for each client.

    Client after client draws a class prior q ~ Dirichlet(alpha, ..., alpha), then the class of each of its
    images from q. When a class runs out, q is renormalised over the classes that are left, or uniform over
    them if it has no mass there. A large alpha gives every client all classes evenly; as alpha goes to 0, a
    client holds one class. `per_client` is len(labels) // clients unless given. Each array is ascending.

    `shared` lets clients hold the same images, though none an image twice: every client draws from all of a class. The
    images of a class are handed out in one shuffled cycle, so that all have as many holders, give or take one.
    """
    size = _checked_size(len(labels), clients, alpha, per_client, shared)
    order = 1 if shared else -1  # images that are not shared are handed out from the end of the queue
    queues = [rng.permutation(members)[::order] for members in _by_class(labels)]
    members = np.array([len(queue) for queue in queues], np.int64)
    handed = np.zeros_like(members)
    shares = []
    for _ in range(clients):
        left = members if shared else members - handed
        counts = _draw_counts(_log_prior(len(members), alpha, rng), left, size, rng)
        shares.append(_next_of_cycles(queues, handed, counts))
        handed += counts
    return shares


def share_out(
    train: object,
    test: object,
    *,
    clients: int = 10,
    alpha: float = 0.3,
    samples_per_client: int | None = None,
    test_per_client: int = 100,
    share_images: bool = False,
    seed: int = 0,
) -> list[Site]:
    """A simulated federation: a labelled dataset shared out among clients by a Dirichlet draw (see `partition`).

    `train` and `test` are pairs (inputs, labels) or Datasets, as in `Site`. Each client is tested on samples in the
    class proportions of its own.
    """
    pool, held_out = as_part(train, "train"), as_part(test, "test")
    labels, test_labels = pool.labels, held_out.labels
    classes = int(max(labels.max(initial=0), test_labels.max(initial=0))) + 1
    rng = stream(seed, "data", purpose="partition")
    shares = partition(labels, clients, alpha, rng, samples_per_client, shared=share_images)
    counts = class_counts(labels, shares, classes)
    rng = stream(seed, "data", purpose="test split")
    tests = split_test(test_labels, counts / counts.sum(axis=1, keepdims=True), test_per_client, rng)
    whole, whole_test = pool.arrays(), held_out.arrays()
    return [
        Site(train=Part(whole, own), test=Part(whole_test, own_test))
        for own, own_test in zip(shares, tests, strict=True)
    ]


def split_test(test_labels: Integers, shares: Floats, per_client: int, rng: Generator) -> list[Index]:
    """`per_client` test images for each client, in the class shares of its row of `shares` (f64[K, classes]).

    The count of each class is the largest-remainder rounding of its share. Images of a class are handed out
    in one shuffled cycle that continues from client to client, so an image comes twice only after all of its
    class have come once. The quota of a class without test images goes to the client's other classes in
    proportion, or evenly to all classes that have some if it has no other.
    """
    if not (np.isfinite(shares).all() and (shares >= 0).all()):
        raise ConfigError("shares must be 0 or more and finite; use class counts divided by their sum")
    if per_client < 1:
        raise ConfigError(f"per_client must be 1 or more, got {per_client}; use at least one test image per client")
    if not len(test_labels):
        raise ConfigError("test_labels must not be empty, got 0 labels; use a dataset that has a test split")
    queues = [rng.permutation(members) for members in _by_class(test_labels, shares.shape[1])]
    present = np.array([len(queue) > 0 for queue in queues])
    handed = np.zeros(len(queues), np.int64)
    result = []
    for share in shares:
        counts = _largest_remainder(_restricted(share, present), per_client)
        result.append(_next_of_cycles(queues, handed, counts))
        handed += counts
    return result


def _next_of_cycles(queues: Sequence[Integers], handed: Integers, counts: Integers) -> Index:
    """The next images of each class's cycle, of which `handed` have gone; ascending."""
    picked = [
        queue[np.arange(start, start + count) % len(queue)]
        for queue, start, count in zip(queues, handed.tolist(), counts.tolist(), strict=True)
        if count
    ]
    return np.sort(np.concatenate(picked))


def class_counts(labels: Integers, index_lists: Sequence[Index], classes: int) -> Integers:
    """How many images of each class each client holds: i64[clients, classes]."""
    _check_labels(labels, classes)
    rows = [np.bincount(labels[index], minlength=classes) for index in index_lists]
    return np.array(rows, np.int64).reshape(len(index_lists), classes)


def _checked_size(images: int, clients: int, alpha: float, per_client: int | None, shared: bool) -> int:
    """The number of images of each client."""
    if not (math.isfinite(alpha) and alpha > 0):
        raise ConfigError(
            f"alpha must be more than 0, got {alpha}; use 0.05 for a skewed partition, 100 for an even one"
        )
    if clients < 1:
        raise ConfigError(f"clients must be 1 or more, got {clients}; use at least one client")
    if shared and per_client is not None:
        if not 1 <= per_client <= images:
            raise ConfigError(
                f"samples_per_client must be from 1 to {images}, the number of private images, got {per_client}; "
                "use fewer images per client or a larger dataset"
            )
        return per_client
    if images < clients:
        raise ConfigError(
            f"clients must be at most {images}, the number of private images, got {clients}; "
            "use fewer clients or a larger dataset, or share_images with samples_per_client"
        )
    if per_client is None:
        return images // clients
    if not 1 <= per_client <= images // clients:
        raise ConfigError(
            f"samples_per_client must be from 1 to {images // clients} for {clients} clients and {images} images, "
            f"got {per_client}; use fewer images per client, fewer clients, a larger dataset or share_images"
        )
    return per_client


def _check_labels(labels: Integers, classes: int) -> None:
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise ConfigError(
            f"labels must be from 0 to {classes - 1}, got {labels.min()} to {labels.max()}; number the classes from 0"
        )


def _by_class(labels: Integers, classes: int | None = None) -> list[Index]:
    """For each class, the indices of its images."""
    classes = int(labels.max()) + 1 if classes is None else classes
    _check_labels(labels, classes)
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels, minlength=classes))[:-1])


def _log_prior(classes: int, alpha: float, rng: Generator) -> Floats:
    """The logarithm of a draw from Dirichlet(alpha, ..., alpha), up to a constant.

    A gamma variate of a small shape underflows, so it is drawn as log G(a) = log G(a + 1) + log(U) / a.
    """
    uniform = 1.0 - rng.random(classes)  # never 0
    return np.log(rng.standard_gamma(alpha + 1.0, classes)) + np.log(uniform) / alpha


def _draw_counts(log_prior: Floats, left: Integers, size: int, rng: Generator) -> Integers:
    """How many images of each class a client gets when it draws them one by one.

    To draw from the renormalised prior is to draw from the prior and ignore classes that have run out. So
    what a multinomial draw gives beyond the images left was ignored, and as many again are drawn.
    """
    counts = np.zeros_like(left)
    while (need := size - int(counts.sum())) > 0:
        still = np.flatnonzero(left > counts)
        counts[still] += rng.multinomial(need, _probabilities(log_prior[still]))
        np.minimum(counts, left, out=counts)
    return counts


def _probabilities(log_weights: Floats) -> Floats:
    """exp(log_weights), normalised; uniform if there is no mass at all."""
    top = log_weights.max()
    weights = np.exp(log_weights - top) if np.isfinite(top) else np.ones_like(log_weights)
    return np.asarray(weights / weights.sum())


def _restricted(share: Floats, present: Mask) -> Floats:
    """The share over the classes that are present, normalised; uniform over them if it has no mass there."""
    kept = np.where(present, share, 0.0)
    if kept.sum() <= 0:
        kept = present.astype(np.float64)
    return np.asarray(kept / kept.sum())


def _largest_remainder(share: Floats, total: int) -> Integers:
    """Whole numbers that sum to `total` in proportion to `share`; the lower class wins a tie."""
    # Rounded, so that 0.29 * 100 counts as 29 and equal shares as equal in spite of floating-point error.
    exact = np.round(share * total, 9)
    counts = np.floor(exact).astype(np.int64)
    first = np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]
    counts[first] += 1
    return counts
