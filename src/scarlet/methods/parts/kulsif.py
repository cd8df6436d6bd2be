"""Which public samples resemble a client's own: a kernel estimate of a density ratio (KuLSIF) and a threshold on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from scarlet.arrays import Inputs, Mask
from scarlet.errors import ConfigError
from scarlet.rng import draw

Matrix = npt.NDArray[np.float64]
Points = npt.NDArray[np.floating]  # [n, d]

_SIDE = 32  # pixels; all images are compared at this size
_ROWS = 256  # points or images taken at a time: 256 images of 3 x 32 x 32 pixels are 6 MB in float64


@dataclass(frozen=True, slots=True)
class Ratio:
    """An estimate of p(u) / q(u), as a sum of kernels: w(u) = sum_i c_i k(u, z_i).

    It is meant for ranking: the estimate can be negative. A point far from every centre gets 0.
    """

    centres: Matrix  # f64[n + m, d]: the x_i of the denominator, then the y_j of the numerator
    weights: Matrix  # f64[n + m]: alpha_i, then 1 / (m lambda) for each y_j
    width: float

    def __call__(self, points: Points) -> Matrix:
        """w at f[q, d] points; memory is O(n + m) beyond the result, whatever q is."""
        found = np.empty(len(points))
        for start in range(0, len(points), _ROWS):
            part = slice(start, start + _ROWS)
            found[part] = kernel(points[part].astype(np.float64, copy=False), self.centres, self.width) @ self.weights
        return found


def kernel(a: Matrix, b: Matrix, width: float) -> Matrix:
    """k(a, b) = exp(-|a - b|^2 / (2 width^2)) for all pairs, f64[len(a), len(b)].

    float64 keeps what lies far apart in order: exp(-245), for two opposite RGB images, would be 0 in float32.
    """
    # |a - b|^2 = |a|^2 + |b|^2 - 2ab needs no array of pairs x d; rounding can leave it a little below 0.
    distance = a @ b.T
    distance *= -2
    distance += np.einsum("id,id->i", a, a)[:, np.newaxis]
    distance += np.einsum("id,id->i", b, b)
    np.maximum(distance, 0, out=distance)
    distance /= -2 * width**2
    return np.exp(distance, out=distance)


def kulsif(numerator: Points, denominator: Points, width: float, ridge: float) -> Ratio:
    """The w that minimises (1/2n) sum_i w(x_i)^2 - (1/m) sum_j w(y_j) + (lambda/2) |w|^2.

    w(u) = sum_i alpha_i k(u, x_i) + 1/(m lambda) sum_j k(u, y_j), with (K11/n + lambda I) alpha = -K12 1 / (n m lambda)
    (Kanamori, Suzuki and Sugiyama, 2012). x_1 ... x_n are the denominator, y_1 ... y_m the numerator, lambda the
    ridge. A large ridge leaves lambda w, the mean kernel around the y_j: a Parzen density of the numerator.
    """
    if not width > 0:
        raise ConfigError(f"width must be more than 0, got {width}; the authors use 5")
    if not ridge > 0:
        raise ConfigError(f"ridge must be more than 0, got {ridge}; without it the estimate is not defined")
    x, y = denominator.astype(np.float64, copy=False), numerator.astype(np.float64, copy=False)
    n, m = len(x), len(y)
    left = kernel(x, x, width) / n
    left[np.diag_indices(n)] += ridge
    right = -kernel(x, y, width).sum(axis=1, keepdims=True) / (n * m * ridge)
    from scipy.linalg import solve  # slow to load, and only needed here

    alpha = solve(left, right, assume_a="pos")[:, 0]
    return Ratio(np.concatenate((x, y)), np.concatenate((alpha, np.full(m, 1 / (m * ridge)))), width)


def pixels(images: Inputs) -> Matrix:
    """Images as points f64[n, d] of [-1, 1]^d, d = C x 32 x 32: bytes are x / 127.5 - 1, floats stay as they are.

    Another size is resized bilinearly, smoothed when it shrinks; 32 x 32 images are only scaled. Inputs that are not
    images [n, C, H, W] are points as they are.
    """
    if images.ndim != 4:
        points = images.reshape(len(images), -1).astype(np.float64)
        return points / 127.5 - 1 if images.dtype == np.uint8 else points
    count, channels, *size = images.shape
    points = np.empty((count, channels * _SIDE**2))
    rows = max(1, _ROWS * _SIDE**2 // (size[0] * size[1]))  # larger images, fewer at a time
    for start in range(0, count, rows):
        values = images[start : start + rows].astype(np.float64)
        if size != [_SIDE, _SIDE]:
            values = _triangles(size[0]) @ values @ _triangles(size[1]).T
        points[start : start + rows] = values.reshape(len(values), -1)
    if images.dtype == np.uint8:
        points /= 127.5
        points -= 1
    return points


@cache
def _triangles(size: int) -> Matrix:
    """f64[32, size]: what each pixel counts in each resized one, by its distance from there; rows sum to 1."""
    scale = size / _SIDE
    centres = (np.arange(_SIDE) + 0.5) * scale
    distance = np.abs(np.arange(size) + 0.5 - centres[:, np.newaxis]) / max(scale, 1.0)
    weights = np.maximum(0.0, 1.0 - distance)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def in_distribution(
    private: Inputs,
    public: Inputs,
    rng: np.random.Generator,
    *,
    threshold: float = 0.0625,
    width: float = 5.0,
    ridge_exponent: float = 0.5,
    used_share: float = 0.5,
    fitted_share: float = 0.9,
    auxiliary: int | None = None,
) -> Mask:
    """bool[P]: which public samples lie as densely among the client's own as most of its own do.

    Of the private images a random `used_share` is taken. A random `fitted_share` of those is the numerator of w; the
    rest is held out. The denominator is `auxiliary` uniform points of [-1, 1]^d (None: as many as images are used),
    and lambda = |private|^ridge_exponent. A sample passes if w(u) >= the tau_client quantile (`threshold`) of w on what
    is held out, so about 1 - tau_client of samples like the client's own do.

    The defaults are the paper's. threshold=0.25, ridge_exponent=-0.5, used_share=1, fitted_share=0.05 and
    auxiliary=250 are those of Selective-FD's authors. threshold=0 leaves out only what is less like the client's images
    than any that it held out. A client with too few images to hold one out (fewer than 4, by default) accepts
    everything, because it has nothing to compare with. On pixels, uniform points are so far from any image that neither
    lambda nor `auxiliary` changes the mask: w is then in proportion to a Parzen density of the client's images.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold must be 0 to 1, got {threshold}; it is a quantile, and 0 accepts most samples")
    for name, share in (("used_share", used_share), ("fitted_share", fitted_share)):
        if not 0 < share <= 1:
            raise ConfigError(f"{name} must be more than 0 and at most 1, got {share}; it is a share of the images")
    if auxiliary is not None and auxiliary < 1:
        raise ConfigError(f"auxiliary must be 1 or more, got {auxiliary}; leave it out for as many as images are used")
    used = int(used_share * len(private))
    fitted = max(1, int(fitted_share * used))
    if fitted >= used:
        return np.ones(len(public), np.bool_)
    chosen = private[draw(rng, len(private), used)]
    in_fit = np.zeros(used, np.bool_)
    in_fit[draw(rng, used, fitted)] = True
    numerator = pixels(chosen[in_fit])
    denominator = rng.uniform(-1, 1, (used if auxiliary is None else auxiliary, numerator.shape[1]))
    ratio = kulsif(numerator, denominator, width, len(private) ** ridge_exponent)
    lowest = np.quantile(_of_images(ratio, chosen[~in_fit]), threshold)
    return _of_images(ratio, public) >= lowest


def _of_images(ratio: Ratio, images: Inputs) -> Matrix:
    """w of each image; only a few at a time become float64, which is eight times the size of a byte."""
    parts = [ratio(pixels(images[start : start + _ROWS])) for start in range(0, len(images), _ROWS)]
    return np.concatenate(parts) if parts else np.empty(0)
