"""Any state that is saved and restored is equal field by field; what cannot be saved is refused by its path."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from scarlet.arrays import Array, Index, Labels, Mask, Values
from scarlet.protocol.aggregation import Teachers
from scarlet.protocol.state import arrays_of, pack, restore

PROFILE = settings(deadline=None, max_examples=100)


@dataclass(frozen=True, slots=True)
class Point:
    """A value: it is replaced, and not changed."""

    name: str
    where: Values
    seen: int | None = None


@dataclass(slots=True)
class Table:
    value: Values
    known: Mask
    name: bytes = b""


@dataclass(slots=True)
class OfClient:
    """What is kept of one client; numbers that are keys here are not clients."""

    table: Table
    rounds: dict[int, Index]
    reply: bytes | None
    fields: Values  # the names of fields mean nothing to the software


@dataclass(slots=True)
class Empty:
    """Nothing is remembered."""


@dataclass(slots=True)
class Everything:
    """A field of each type that a state can have."""

    table: Table
    empty: Empty
    slot: Any  # the state of a slot
    array: Array
    number: int
    real: float
    truth: bool
    text: str
    raw: bytes
    maybe_array: Index | None
    maybe_text: str | None
    maybe_table: Table | None
    point: Point
    points: list[Point]
    replies: list[bytes]
    pairs: tuple[tuple[int, Values], ...]
    triple: tuple[int, str, Values]
    numbers: list[int | None]
    prepared: Mapping[str, Array]
    by_name: dict[str, Point]
    nested: dict[str, dict[str, Values]]
    of_client: dict[int, OfClient]
    counts: dict[int, int]
    fields: Values


@cache  # to make a strategy anew for each array takes longer than to draw the array
def arrays_like(kind: type, shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    return hnp.arrays(kind, shape)


def arrays(*kinds: type) -> st.SearchStrategy[Any]:
    """Arrays of any shape, empty ones and scalars too."""
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    return st.tuples(st.sampled_from(kinds), shapes).flatmap(lambda which: arrays_like(*which))


values, indices, masks = arrays(np.float32), arrays(np.int64), arrays(np.bool_)
any_arrays = arrays(np.float32, np.float64, np.int8, np.uint8, np.int32, np.int64, np.uint64, np.bool_)
texts = st.sampled_from(["", "0", "array", "fields", "(text)", ".", "a.b", "a", "%2E", "\ud800"]) | st.text(max_size=5)
raws = st.binary(max_size=9)
numbers = st.integers(-(2**70), 2**70)
keys = st.integers(-3, 3) | st.integers(0, 2**31)
reals = st.floats() | st.integers(-9, 9)  # infinity and NaN too
points = st.builds(Point, texts, values, st.none() | numbers)
tables = st.builds(Table, values, masks, raws)
of_clients = st.builds(OfClient, tables, st.dictionaries(keys, indices, max_size=2), st.none() | raws, values)
states = st.builds(
    Everything,
    table=tables,
    empty=st.builds(Empty),
    slot=tables | st.builds(Empty),
    array=any_arrays,
    number=numbers,
    real=reals,
    truth=st.booleans(),
    text=texts,
    raw=raws,
    maybe_array=st.none() | indices,
    maybe_text=st.none() | texts,
    maybe_table=st.none() | tables,
    point=points,
    points=st.lists(points, max_size=3),
    replies=st.lists(raws, max_size=3),
    pairs=st.lists(st.tuples(numbers, values), max_size=2).map(tuple),
    triple=st.tuples(numbers, texts, values),
    numbers=st.lists(st.none() | numbers, max_size=3),
    prepared=st.dictionaries(texts, any_arrays, max_size=3),
    by_name=st.dictionaries(texts, points, max_size=3),
    nested=st.dictionaries(texts, st.dictionaries(texts, values, max_size=2), max_size=3),
    of_client=st.dictionaries(keys, of_clients, max_size=3),
    counts=st.dictionaries(keys, numbers, max_size=3),
    fields=values,
)


def parts(value: object) -> object:
    """A state as nested tuples that == compares bit by bit, with the types."""
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.shape, value.tobytes()
    if is_dataclass(value):
        return type(value), tuple((each.name, parts(getattr(value, each.name))) for each in fields(value))
    if isinstance(value, list | tuple):
        return type(value), tuple(map(parts, value))
    if isinstance(value, Mapping):
        return dict, tuple((key, parts(each)) for key, each in value.items())
    return type(value), repr(value)


def new(state: Everything) -> Everything:
    """A state as a slot makes it: of the same types, with other contents."""
    one, table = np.ones(3, np.float32), Table(np.ones((1, 1), np.float32), np.ones(1, np.bool_), b"other")
    point, slot = Point("other", one, 1), deepcopy(table) if isinstance(state.slot, Table) else Empty()
    kept = OfClient(table, {1: np.arange(2)}, None, one)
    return Everything(
        table=deepcopy(table),
        empty=Empty(),
        slot=slot,
        array=one,
        number=1,
        real=2.0,
        truth=True,
        text="other",
        raw=b"other",
        maybe_array=None,
        maybe_text=None,
        maybe_table=deepcopy(table),
        point=point,
        points=[point],
        replies=[b"other"],
        pairs=((1, one),),
        triple=(1, "other", one),
        numbers=[1],
        prepared={"other": one},
        by_name={"other": point},
        nested={"other": {"other": one}},
        of_client={7: kept},
        counts={7: 7},
        fields=one,
    )


@PROFILE
@given(states)
def test_any_state_that_is_saved_and_restored_is_equal_field_by_field(state: Everything) -> None:
    before, restored = parts(state), new(state)
    restore(restored, arrays_of(state))
    assert parts(restored) == before == parts(state)


@PROFILE
@given(states)
def test_what_can_be_changed_is_restored_in_place_and_shares_no_memory_with_what_was_saved(state: Everything) -> None:
    restored, saved = new(state), arrays_of(state)
    references = restored.table, restored.empty, restored.slot
    restore(restored, saved)
    for before, after in zip(references, (restored.table, restored.empty, restored.slot), strict=True):
        assert before is after
    for array in arrays_of(restored).values():
        if not array.flags.writeable:
            continue  # bytes and texts, which nobody can change
        assert not any(np.shares_memory(array, theirs) for theirs in saved.values())


@PROFILE
@given(states)
def test_each_array_is_saved_under_a_name_of_its_own_and_not_copied(state: Everything) -> None:
    packed = pack(state)
    saved = packed.all()
    assert len(saved) == len(packed.common) + sum(map(len, packed.by_client.values()))
    assert saved["table.value"] is state.table.value
    assert saved["fields"] is state.fields
    assert [saved[f"pairs.{at}.1"] is value for at, (_, value) in enumerate(state.pairs)] == [True] * len(state.pairs)
    assert [saved[f"replies.{at}"].tobytes() for at in range(len(state.replies))] == state.replies


@PROFILE
@given(states)
def test_all_that_belongs_to_one_client_is_saved_with_that_client_and_nothing_else_is(state: Everything) -> None:
    packed = pack(state)
    assert set(packed.by_client) == {*state.of_client, *state.counts}
    for client, its in packed.by_client.items():
        expected, at = {f"counts.{client}.(text)"} if client in state.counts else set(), f"of_client.{client}"
        if client in state.of_client:
            kept = state.of_client[client]
            expected |= {f"{at}.{name}" for name in ("(text)", "table.value", "table.known", "table.name", "fields")}
            expected |= {f"{at}.rounds.{key}" for key in kept.rounds}
            expected |= {f"{at}.reply"} if kept.reply is not None else set()
            assert its[f"{at}.table.value"] is kept.table.value
        assert set(its) == expected


@PROFILE
@given(states, keys, of_clients)
def test_a_change_of_one_clients_entry_changes_what_is_saved_of_that_client_alone(
    state: Everything, client: int, kept: OfClient
) -> None:
    """So that the others' need not be saved again."""
    state.of_client[client] = kept

    def saved() -> dict[int, dict[str, bytes]]:
        by_client = pack(state).by_client
        return {number: {name: array.tobytes() for name, array in its.items()} for number, its in by_client.items()}

    before = saved()
    kept.table.value, kept.reply = np.full(30, 7, np.float32), b"a new reply"
    kept.rounds[9] = np.arange(3)
    after = saved()
    assert [number for number in after if after[number] != before[number]] == [client]


def test_names_are_paths_and_the_rest_is_a_text() -> None:
    point = Point("p", np.ones(2, np.float32))
    state = made(
        points=(list[Point], [point]), named=(dict[str, Point], {"a.b": point}), raw=(bytes, b"\1"), n=(int, 3)
    )
    saved = arrays_of(state)
    assert saved.pop("(text)").tobytes() == (
        b'{"points": [{"name": "p", "where": 0, "seen": null}], '
        b'"named": {"a.b": {"name": "p", "where": 0, "seen": null}}, "raw": 0, "n": 3}'
    )
    assert {name: array.tolist() for name, array in saved.items()} == {
        "points.0.where": [1, 1],
        "named.a%2Eb.where": [1, 1],
        "raw": [1],
    }


def made(**contents: tuple[Any, object]) -> Any:
    """A state with fields of some types."""
    hints = [(name, hint) for name, (hint, _) in contents.items()]
    return make_dataclass("State", hints, slots=True)(*(value for _, value in contents.values()))


@dataclass
class Loose:
    """Anything can be set, declared or not."""

    value: int = 0


ONE, ROW = np.ones(1, np.float32), np.ones((1, 2), np.float32)
REFUSED: dict[str, tuple[Any, object]] = {
    "a set": (set[int], {1}),
    "a complex number": (complex, 1j),
    "a numpy integer": (int, np.int64(3)),
    "a numpy float": (float, np.float64(3)),
    "a truth where a number is declared": (int, True),
    "a number where a text is declared": (str, 3),
    "None where an array is declared": (Values, None),
    "an array where bytes are declared": (bytes, ONE),
    "an array of objects": (Array, np.array([object()])),
    "a list where a tuple is declared": (tuple[int, ...], [1]),
    "a list of nothing in particular": (list, [1]),
    "a tuple of another length": (tuple[int, int], (1, 2, 3)),
    "a dictionary by truth": (dict[bool, int], {True: 1}),
    "a truth among the clients": (dict[int, int], {True: 1}),
    "a text among the clients": (dict[int, int], {"1": 1}),
    "a client among the texts": (dict[str, int], {1: 1}),
    "a dictionary by pairs": (dict[tuple[int, int], int], {(1, 2): 1}),
    "one of several types": (int | str, 3),
    "a dataclass without slots": (Loose, Loose()),
    "more than was declared": (Labels, Teachers(np.arange(1), ROW, ROW, {})),
    "a slot's state that cannot be changed": (Any, Point("p", ONE)),
    "a slot's state that is none": (Any, 3),
}


@pytest.mark.parametrize(("hint", "value"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_saved_is_refused_by_its_path(hint: Any, value: object) -> None:
    with pytest.raises(TypeError, match=r"^bad is a [^\n]+$"):
        pack(made(good=(int, 1), bad=(hint, value)))
    within = made(inner=(Any, made(bad=(hint, value))))
    with pytest.raises(TypeError, match=r"^inner\.bad is a "):
        pack(within)
    if hint is not Any:
        with pytest.raises(TypeError, match=r"^rows\.1\.bad is a "):
            inner = made(bad=(hint, value))
            pack(made(rows=(tuple[int, type(inner)], (1, inner))))  # type: ignore[misc]


@pytest.mark.parametrize("state", [3, "text", Point("p", ONE), Loose(), None])
def test_a_state_is_a_dataclass_with_slots_that_can_be_changed(state: object) -> None:
    with pytest.raises(TypeError, match=r"^the state is a "):
        pack(state)
