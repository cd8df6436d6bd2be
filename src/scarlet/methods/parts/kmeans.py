"""k-means of many small, unrelated sets of points in one batched computation: COMET's teachers of a public sample."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Index, Mask, Values

Members = npt.NDArray[np.int16]
# Double precision: soft-labels that are nearly certain differ by so little that |x|^2 - 2 x.c + |c|^2, expanded in
# single precision, would be rounding errors only.
Reals = npt.NDArray[np.float64]

BLOCK = 6 * 2**20  # bytes of the largest array; samples are taken in blocks of it, to stay within a processor's cache
MOST_STEPS = 1_000  # every step lowers the inertia, so the search ends by itself, and far sooner
NEGLIGIBLE = 1e-12  # of the largest square: a distance that counts as none; of their sum: a gain not worth a move
TIE = 1e-9  # the share of its squared distance from the mean by which a point loses against an equally good one
NOWHERE = 1e300  # squared distance of an empty cluster; finite, so that no weight times it is 0


class Clusters(NamedTuple):
    """The clusters of each of n samples."""

    centre: Values  # f32[n, C, N], each the mean of its members
    member: Index  # i64[n, K], the cluster of each point; -1 where the point is absent
    inertia: Reals  # f64[n], the sum of the squared distances of the present points to their centres


def cluster(points: Values, present: Mask, clusters: int, starts: int = 4) -> Clusters:
    """Part each sample's present points to have the least inertia, sum_k |x_k - c_m(k)|^2, that `starts` starts find.

    `points` is f32[n, K, N] and `present` bool[n, K], with a present point in each sample. The starts follow from where
    the points are, so nothing is drawn. No move of a single point improves the result, which is stronger than to be
    a fixed point of Lloyd's algorithm. clusters=1 gives the mean; with fewer distinct points than clusters each point
    is a centre, and the centres left over repeat one that has members.
    """
    samples, size, classes = points.shape
    if not samples:
        return Clusters(np.empty((0, clusters, classes), np.float32), np.empty((0, size), np.int64), np.empty(0))
    assert bool(present.any(axis=1).all()), "a sample without a point has no clusters; leave it out"
    step = max(1, BLOCK // (8 * size * max(size, starts * clusters, classes)))
    blocks = [
        _cluster(points[first : first + step], present[first : first + step], clusters, starts)
        for first in range(0, samples, step)
    ]
    return Clusters(*map(np.concatenate, zip(*blocks, strict=True)))


def _cluster(points: Values, present: Mask, clusters: int, starts: int) -> Clusters:
    value = np.where(present[..., np.newaxis], points, 0).astype(np.float64)
    weight = present.astype(np.float64)
    # About the mean the squares in the expanded distances are as small as they can be.
    centred = value - (weight[:, np.newaxis] @ value) / weight.sum(axis=1)[:, np.newaxis, np.newaxis]
    centred *= weight[..., np.newaxis]
    start, merged, twin = _seed(centred, weight, clusters, starts)
    member = np.take_along_axis(_improve(centred, merged, start, clusters), twin, axis=1).astype(np.int64)

    held = (member[:, np.newaxis] == np.arange(clusters)[:, np.newaxis]) * weight[:, np.newaxis]  # [n, C, K]
    count = held.sum(axis=2)
    filled = np.where(count > 0, np.arange(clusters), count.argmax(axis=1)[:, np.newaxis])
    sample = np.arange(len(points))[:, np.newaxis]
    centre = ((held @ value) / np.maximum(count, 1)[..., np.newaxis])[sample, filled].astype(np.float32)
    apart = (value - centre[sample, member]) * weight[..., np.newaxis]
    return Clusters(centre, np.where(present, member, -1), np.square(apart).sum(axis=(1, 2)))


def _seed(points: Reals, weight: Reals, clusters: int, starts: int) -> tuple[Members, Reals, Index]:
    """The first members [n, S, K] of each start, the weights [n, K] once equal points are one, and which that one is.

    Centres are added one by one, each at the point that lowers sum_k w_k min_c |x_k - c|^2 most. For the starts to
    differ, start s begins with the s-th point of such a sequence. The even starts have the mean before that, and let
    the centres become the means of their clusters before each further one (global k-means); the odd ones have points
    only (greedy k-means++ with every point a candidate).
    """
    sample = np.arange(len(points))
    length = np.square(points).sum(axis=2)
    apart = points @ points.transpose(0, 2, 1)  # [n, K, K]
    apart *= -2
    apart += length[:, :, np.newaxis]
    apart += length[:, np.newaxis]
    np.maximum(apart, 0, out=apart)

    # Equal points belong to the same cluster, and a move of one of them alone would never pay.
    equal = (apart <= NEGLIGIBLE * length.max(axis=1)[:, np.newaxis, np.newaxis]) & (weight > 0)[:, np.newaxis]
    twin = equal.argmax(axis=2)
    flat = (twin + twin.shape[1] * sample[:, np.newaxis]).ravel()
    weight = np.bincount(flat, weight.ravel(), minlength=twin.size).reshape(twin.shape)

    # Of two points that are near to each other only, either is as good; the one nearer to the mean is taken, for the
    # order of the points not to matter.
    unfit = np.where(weight > 0, TIE * length, np.inf)
    scratch = np.empty_like(apart)

    def next_to(nearest: Reals) -> Reals:
        """The distances [n, K] from the best point to add to centres at the distances `nearest`."""
        np.minimum(apart, nearest[:, np.newaxis], out=scratch)
        inertia = (scratch @ weight[..., np.newaxis])[..., 0] + unfit
        found: Reals = apart[sample, inertia.argmin(axis=1)]
        return found

    member = np.zeros((len(points), starts, points.shape[1]), np.int16)
    sequence = length
    for start in range(starts):
        first = next_to(sequence)
        sequence = np.minimum(sequence, first)
        centres = [first] if start % 2 else [length, first]  # as distances [n, K] from each
        while len(centres) < clusters:
            if start % 2 == 0:
                centres = _recentred(points, weight, centres)
            centres.append(next_to(np.minimum.reduce(centres)))
        member[:, start] = np.stack(centres[:clusters], axis=1).argmin(axis=1)
    return member, weight, twin


def _recentred(points: Reals, weight: Reals, centres: list[Reals]) -> list[Reals]:
    """The distances from the means of the points nearest to each centre; from 0, the mean of all, if there are none."""
    number = np.arange(len(centres))[:, np.newaxis]
    held = (np.stack(centres, axis=1).argmin(axis=1)[:, np.newaxis] == number) * weight[:, np.newaxis]  # [n, c, K]
    mean = (held @ points) / np.maximum(held.sum(axis=2, keepdims=True), 1)
    apart = np.square(mean).sum(axis=2, keepdims=True) - 2 * mean @ points.transpose(0, 2, 1)
    apart += np.square(points).sum(axis=2)[:, np.newaxis]
    return list(np.maximum(apart, 0).swapaxes(0, 1))


def _improve(points: Reals, weight: Reals, member: Members, clusters: int) -> Members:
    """The best of each sample's partitions [n, S, K] once none can be improved, as members [n, K].

    The steps are Lloyd's and, where these change nothing, the best move of a single point.
    """
    length = np.square(points).sum(axis=2, keepdims=True)
    # With (x, 1, |x|^2) for a point and (-2 c, |c|^2, 1) for a centre, one product gives all squared distances.
    lifted = np.concatenate([points, np.ones_like(length), length], axis=2)
    lifted *= (weight > 0)[..., np.newaxis]  # what has no weight is equally far from all centres, and stays
    weighted = lifted * weight[..., np.newaxis]
    least = NEGLIGIBLE * weighted[..., -1].sum(axis=1)
    number = np.arange(clusters, dtype=np.int16)[:, np.newaxis]
    result = np.empty(weight.shape, np.int16)
    index = np.arange(len(points))
    done = np.zeros(member.shape[:2], np.bool_)
    for step in range(MOST_STEPS):
        held = (member[:, :, np.newaxis] == number).astype(np.float64)  # [n, S, C, K]
        total = held.reshape(len(held), -1, held.shape[3]) @ weighted
        centre = total[..., :-2] / np.maximum(total[..., -2:-1], 1)
        square = np.square(centre).sum(axis=2, keepdims=True)
        offset = np.where(total[..., -2:-1] > 0, square, NOWHERE)
        dual = np.concatenate([-2 * centre, offset, np.ones_like(offset)], axis=2)
        apart = (dual @ lifted.transpose(0, 2, 1)).reshape(held.shape)
        count = total[..., -2].reshape(held.shape[:3])

        own = (apart * held).sum(axis=2)
        far = np.nonzero(own > apart.min(axis=2) + least[:, np.newaxis, np.newaxis])
        moved = member.copy()
        moved[far] = apart[far[0], far[1], :, far[2]].argmin(axis=1)

        stuck = ~done
        stuck[far[:2]] = False
        at = np.nonzero(stuck)
        if len(at[0]):
            point, target, gain = _best_move(apart[at], held[at], count[at], own[at], weight[at[0]])
            better = gain > least[at[0]]
            done[at] = ~better
            moved[at[0][better], at[1][better], point[better]] = target[better]

        finished: Mask = np.logical_or(done.all(axis=1), step == MOST_STEPS - 1)
        if 4 * finished.sum() >= len(finished):  # to leave out fewer is not worth the copies
            # The inertia is the scatter less sum_c n_c |c|^2.
            best = (count * square.reshape(count.shape)).sum(axis=2)[finished].argmax(axis=1)
            result[index[finished]] = member[finished, best]
            left = ~finished
            index, weight, least, done, moved = index[left], weight[left], least[left], done[left], moved[left]
            lifted, weighted = lifted[left], weighted[left]
            if not len(index):
                break
        member = moved
    return result


def _best_move(apart: Reals, held: Reals, count: Reals, own: Reals, weight: Reals) -> tuple[Index, Index, Reals]:
    """The point whose move to another cluster lowers the inertia most, that cluster, and by how much.

    To leave cluster a saves n_a w / (n_a - w) |x - a|^2, and to enter b costs n_b w / (n_b + w) |x - b|^2, for a point
    of weight w. To enter an empty cluster costs nothing, so none stays empty that a distinct point could fill.
    """
    room, load = count[..., np.newaxis], weight[:, np.newaxis]
    cost = np.where(held > 0, np.inf, apart * (room * load / np.maximum(room + load, 1)))
    size = (count[:, np.newaxis] @ held)[:, 0]  # of the point's own cluster; one that it fills alone it may not leave
    saving = own * np.where(size > weight, size * weight / np.maximum(size - weight, 1), 0)
    gain = saving - cost.min(axis=1)
    point = gain.argmax(axis=1)
    move = np.arange(len(gain))
    return point, cost[move, :, point].argmin(axis=1), gain[move, point]
