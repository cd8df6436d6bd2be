from __future__ import annotations

import math
import tracemalloc

import constriction
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scarlet.errors import MessageError
from scarlet.wire.entropy import (
    Levels,
    decode_labels,
    encode_labels,
    read_varint,
    varint,
)
from scarlet.wire.quantise import levels
from tests.wire.changed import mutated, told

PROFILE = settings(deadline=None, max_examples=200)
AnsCoder, Categorical = constriction.stream.stack.AnsCoder, constriction.stream.model.Categorical

seeds = st.integers(0, 2**32 - 1)
row_counts = st.integers(0, 60)
class_counts = st.integers(2, 12) | st.sampled_from([2, 10, 100, 200, 1000])
bit_counts = st.integers(1, 23)
kinds = st.sampled_from(["any", "one-hot", "uniform", "first", "last", "nearly certain"])


def some_levels(kind: str, seed: int, rows: int, classes: int, bits: int) -> Levels:
    """Rows of levels of a kind, that sum to 2^bits - 1."""
    rng = np.random.default_rng(seed)
    units = 2**bits - 1
    best = rng.integers(classes, size=rows)
    if kind == "any":
        weight = rng.gamma(10.0 ** rng.uniform(-2, 3, (rows, 1)), size=(rows, classes)) + 1e-30
        return np.asarray(rng.multinomial(units, weight / weight.sum(axis=1, keepdims=True)).reshape(rows, classes))
    if kind == "uniform":
        place = (np.arange(classes) + rng.integers(classes, size=(rows, 1))) % classes
        return np.asarray(units // classes + (place < units % classes).astype(np.int64))
    if kind in ("first", "last"):
        best = np.full(rows, 0 if kind == "first" else classes - 1)
    found: Levels = units * np.eye(classes, dtype=np.int64)[best]
    if kind == "nearly certain":
        found[np.arange(rows), best] -= 1
        found[np.arange(rows), rng.integers(classes, size=rows)] += 1
    return found


def literal(rows: int, classes: int, bits: int) -> Levels:
    """Levels by a formula of whole numbers, which no library has a part in."""
    units = 2**bits - 1
    found = []
    for i in range(rows):
        weight = [(7 * i + 3 * j * j + i * j) % 11 ** (1 + i % 3) for j in range(classes)]
        weight[i % classes] += 1
        row = [units * each // sum(weight) for each in weight]
        row[5 * i % classes] += units - sum(row)
        found.append(row)
    return np.array(found, np.int64)


def read_or_refused(data: bytes, rows: int, classes: int, bits: int) -> bool:
    """Decode whatever it is, and check that it is refused or sound; whether it was read."""
    try:
        found = decode_labels(data, rows, classes, bits)
    except MessageError:
        return False
    assert found.shape == (rows, classes)
    assert found.dtype == np.int64
    assert (found >= 0).all()
    assert (found.sum(axis=1) == 2**bits - 1).all()
    return True


@PROFILE
@given(kinds, seeds, row_counts, class_counts, bit_counts)
def test_decoded_labels_are_those_that_were_encoded(kind: str, seed: int, rows: int, classes: int, bits: int) -> None:
    given = some_levels(kind, seed, rows, classes, bits)
    data = encode_labels(given, bits)
    for received in (data, memoryview(b"before" + data + b"after")[6:-5]):
        found = decode_labels(received, rows, classes, bits)
        assert found.dtype == np.int64
        assert np.array_equal(found, given)
    assert encode_labels(np.asfortranarray(given), bits) == data


@PROFILE
@given(st.binary(max_size=200), row_counts, st.integers(2, 20), bit_counts)
def test_any_bytes_are_distributions_or_refused(data: bytes, rows: int, classes: int, bits: int) -> None:
    read_or_refused(data, rows, classes, bits)


@PROFILE
@given(kinds, seeds, row_counts, st.integers(2, 20), bit_counts)
def test_changed_labels_are_distributions_or_refused(kind: str, seed: int, rows: int, classes: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    data = encode_labels(some_levels(kind, seed, rows, classes, bits), bits)
    for _ in range(20):
        read_or_refused(mutated(data, rng), rows, classes, bits)


def test_some_changed_labels_are_read_and_most_that_are_cut_are_not() -> None:
    rng = np.random.default_rng(0)
    data = encode_labels(some_levels("any", 0, 40, 5, 6), 6)
    changed = [read_or_refused(mutated(data, rng), 40, 5, 6) for _ in range(500)]
    cut = [read_or_refused(data[:length], 40, 5, 6) for length in range(len(data))]
    assert any(changed) and not all(changed)
    assert sum(cut) < len(cut) / 10


@pytest.mark.parametrize("bits", [1, 8, 23])
def test_bytes_after_the_last_label_are_refused(bits: int) -> None:
    data = encode_labels(some_levels("any", 0, 30, 10, bits), bits)
    with pytest.raises(MessageError):
        decode_labels(data + b"\1" * 8, 30, 10, bits)
    with pytest.raises(MessageError, match="samples that there are not"):
        decode_labels(b"\0", 0, 10, bits)


@pytest.mark.parametrize("bits", [1, 8, 23])
def test_a_row_that_is_no_distribution_is_refused_by_its_receiver(bits: int) -> None:
    rows = np.array([[0.5, 0.25, 0.25], [np.nan, 0.5, 0.5], [0, 0, 1]], np.float32)
    with pytest.raises(MessageError) as refused:
        decode_labels(encode_labels(levels(rows, bits), bits), 3, 3, bits)
    assert refused.value.reason == "unnormalised"


@pytest.mark.parametrize("shape", [(60, 10), (1000, 10), (1000, 200), (50, 1000)])
@pytest.mark.parametrize("bits", [1, 8, 23])
def test_no_bytes_make_the_decoder_take_more_than_a_small_multiple_of_what_it_returns(
    shape: tuple[int, int], bits: int
) -> None:
    rows, classes = shape
    rng = np.random.default_rng(0)
    legitimate = encode_labels(some_levels("any", 0, rows, classes, bits), bits)
    huge = varint(2**62)
    limit = 64 * rows * classes + 4 * 8 * 4 * classes * (2 + 2 * bits) + 2**18  # the labels, and the counts
    limit += 3 * 8 * rows * (2 + 2 * bits)  # and the weights of one class
    for data in (b"", huge, huge + rng.bytes(100), rng.bytes(1000), legitimate, legitimate[: len(legitimate) // 2]):
        tracemalloc.start()
        try:
            decode_labels(data, rows, classes, bits)
        except MessageError:
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak <= limit + 4 * 8 * len(data)


def one_hot_size(best: Levels, classes: int) -> int:
    return len(encode_labels(np.eye(classes, dtype=np.int64)[best], 1))


def order_0(rows: Levels) -> float:
    """The bytes of the levels of each class but the last, by their own frequencies."""
    bits = 0.0
    for column in rows.T[:-1]:
        share = np.unique(column, return_counts=True)[1] / len(column)
        bits -= len(column) * float((share * np.log2(share)).sum())
    return bits / 8


LABELS = [  # bits, rows, classes
    (1, 6, 2, "00e4aaaa3c"),
    (1, 6, 10, "017c830049c5"),
    (1, 3, 200, "003be0aafa23"),
    (1, 100, 10, "00778ab7cb5ed6c755aa8d9c8233638a8f41f1ac388f9901"),
    (1, 20, 200, "01fc7c5a7cb4e2407e5166277f1a340d7bfa8d00bd1e01"),
    (4, 6, 2, "021ee02ce9cac62516"),
    (4, 6, 10, "03182608acd28e2ade7fc29c22749217c76a086e533aca9adb2f1d89"),
    (4, 3, 200, "00eadb72656f56"),
    (4, 100, 10, "274 bytes, 34a1c86864a32213f0821dc089bd11cb"),
    (4, 20, 200, "00eda1c85e218ac86361ef8abe93e916fedb746e3d1b472d81f6615cd97c443c4471f734fba6a47a74dc4b6407"),
    (8, 6, 2, "0501dc60d300bc25dec79398"),
    (8, 6, 10, "60 bytes, 6053a770ed5d72029515607baa88831a"),
    (8, 3, 200, "277 bytes, 803cee20738b31f0e7bd4c8e55c2afa2"),
    (8, 100, 10, "717 bytes, 497193d0ce48a4279a396706ca9a70be"),
    (8, 20, 200, "1321 bytes, 05d01b2e222733caf12c14c954c0fde2"),
    (12, 6, 2, "08001e4c3e00d03160e05ae78ee36102"),
    (12, 6, 10, "89 bytes, b98924f83afa1491ee6795db12793ffb"),
    (12, 3, 200, "628 bytes, 45427c8515c99261cdf43d779f741797"),
    (12, 100, 10, "1161 bytes, cbc01c5ce8a2e9e08c2a596473bd6842"),
    (12, 20, 200, "3475 bytes, 4100a7764462ce533d8bc98762e4686e"),
]


@pytest.mark.parametrize(("bits", "rows", "classes", "data"), LABELS)
def test_the_bytes_of_labels_are_frozen(bits: int, rows: int, classes: int, data: str) -> None:
    assert told(encode_labels(literal(rows, classes, bits), bits)) == data


@pytest.mark.parametrize("classes", [2, 3, 10, 50, 200, 1000])
@pytest.mark.parametrize("rows", [1, 8, 9, 100, 1000])
def test_a_certain_label_costs_the_logarithm_of_the_classes_at_most(classes: int, rows: int) -> None:
    best = np.random.default_rng(rows).integers(classes, size=rows)
    fixed = np.arange(rows) * 7 % classes
    for each in (best, fixed):
        beside = 1 + 4  # of the whole message: how it is coded, and words that are not full
        assert one_hot_size(each, classes) <= rows * math.log2(classes) / 8 + beside


@pytest.mark.parametrize("classes", [2, 10, 200, 1000])
def test_labels_that_are_all_the_same_class_cost_next_to_nothing(classes: int) -> None:
    for best in (0, classes // 2, classes - 1):
        rare = one_hot_size(np.full(1000, best), classes)
        assert rare <= 16 + classes / 2


@pytest.mark.parametrize("seed", range(3))
def test_sharp_labels_cost_about_their_entropy_by_class(seed: int) -> None:
    rows = levels(np.random.default_rng(seed).dirichlet([0.1] * 10, 1000).astype(np.float32), 8)
    assert len(encode_labels(rows, 8)) <= 1.15 * order_0(rows) + 40


def refused_or_broken_one_by_one(data: bytes, rows: int, classes: int, bits: int) -> list[list[int]] | None:
    """The levels in `data`, symbol by symbol, as the module describes it; None if something cannot be."""
    try:
        length, at = read_varint(data, 0)
    except MessageError:
        return None
    plain = "".join(f"{byte:08b}" for byte in data[at : at + length])
    words = data[at + length :]
    try:
        coder = AnsCoder(np.frombuffer(words + bytes(-len(words) % 4), "<u4"))
    except ValueError:
        return None
    sticks = [[2**bits - 1] for _ in range(rows)]
    seen: dict[tuple[int, int], list[int]] = {}
    for start, stop in zip([0, 8, 16, 32], [8, 16, 32, 64], strict=True):
        before = {place: list(counts) for place, counts in seen.items()}
        for of in range(classes - 1):
            for stick in sticks[start:stop]:
                left, total = stick[-1], 2**bits - 1
                if left == 0:
                    continue
                split = sum(left > edge for edge in (total // 8, total // 2, total - 1))
                symbol = coder.decode(Categorical(weights(before, of, split, bits), perfect=False))
                seen.setdefault((of, split), [0] * (2 + 2 * bits))[symbol] += 1
                width = max(0, symbol // 2 - 1)
                if width > len(plain):
                    return None
                small = 0 if symbol < 2 else int("1" + plain[:width], 2)
                plain = plain[width:]
                if 2 * small > left:
                    return None
                stick.append(small if symbol % 2 else left - small)
    if not coder.is_empty() or len(plain) >= 8 or "1" in plain:
        return None
    filled = [stick + [0] * (classes + 1 - len(stick)) for stick in sticks]
    return [[a - b for a, b in zip(stick[:-1], [*stick[1:-1], 0], strict=True)] for stick in filled]


def weights(seen: dict[tuple[int, int], list[int]], of: int, split: int, bits: int) -> npt.NDArray[np.float64]:
    """Of each symbol: how often the class had it, and four times its share in all classes."""
    shared = [8.0, 2.0] + [1.0] * (2 * bits)
    for (_, other), counts in seen.items():
        if other == split:
            shared = [a + b for a, b in zip(shared, counts, strict=True)]
    own = seen.get((of, split), [0] * (2 + 2 * bits))
    return np.array([count + 4.0 * each / sum(shared) for count, each in zip(own, shared, strict=True)])


@PROFILE
@given(kinds, seeds, st.integers(1, 60), st.integers(2, 9), st.integers(2, 23))
def test_labels_are_read_and_refused_as_symbol_by_symbol(
    kind: str, seed: int, rows: int, classes: int, bits: int
) -> None:
    rng = np.random.default_rng(seed)
    given = some_levels(kind, seed, rows, classes, bits)
    data = encode_labels(given, bits)
    assert refused_or_broken_one_by_one(data, rows, classes, bits) == given.tolist()
    for _ in range(3):
        changed = mutated(data, rng)
        try:
            found = decode_labels(changed, rows, classes, bits).tolist()
        except MessageError:
            found = None
        assert found == refused_or_broken_one_by_one(changed, rows, classes, bits)
