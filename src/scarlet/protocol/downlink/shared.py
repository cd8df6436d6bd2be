"""Everybody is taught the same labels, of which server and clients keep synchronised caches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from scarlet.arrays import Index, Labels, Values
from scarlet.distributions import check_distributions
from scarlet.errors import MessageError
from scarlet.job import Choose
from scarlet.protocol.aggregation import Teachers
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.cache import ABSENT, CachePolicy, CacheTable, NoCache, OutOfStep, member, recall, store
from scarlet.protocol.codec import Codec, Context, Layouts
from scarlet.protocol.holdings import Holdings
from scarlet.protocol.layouts import compact, reference
from scarlet.protocol.messages import LAST_ROUND, NO_LABELS_YET, Broadcast, CatchUp, History, Message, Sync
from scarlet.protocol.slots import Learner, Round
from scarlet.protocol.stamps import StampHistory, StampReplay, checksum
from scarlet.wire.frame import Frame

_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Shared:
    """All clients are taught the same labels; `policy` says which of them are requested again.

    `teach` is what the server teaches: the aggregate of the answers, or what its own model says after it has learned
    the aggregate. `teachers` is C, the labels of each sample, of which a client takes one by `choose`.
    """

    policy: CachePolicy = field(default_factory=NoCache)
    teach: Literal["aggregate", "model"] = "aggregate"
    teachers: int | None = None
    choose: Choose | None = None

    @property
    def layouts(self) -> Sequence[Layouts]:
        return ({"reference": reference.CATCH_UP, "compact": compact.CATCH_UP}, {"compact": compact.HISTORY})

    @property
    def has_targets(self) -> bool:
        """Whether what the server's model learns differs from what is taught, and is therefore kept beside it."""
        return self.teach == "model" or self.teachers is not None

    def label_shape(self, classes: int) -> tuple[int, ...]:
        return (classes,) if self.teachers is None else (self.teachers, classes)

    def server(self, agreement: Agreement, codec: Codec) -> SharedServer:
        return SharedServer(self, agreement, codec)

    def client(self, agreement: Agreement, codec: Codec) -> SharedClient:
        return SharedClient(agreement, codec)


@dataclass(slots=True)
class SharedServerState:
    """What the server remembers of the labels that it taught."""

    cache: CacheTable
    holdings: Holdings  # which client holds what
    target: Values | None  # f32[P, N]: what its model learned of each cached sample, if not what was taught
    stamps: StampHistory | None  # where the codec leaves out what clients can derive
    sync: Sync | None = None  # of the closed round
    digest: bytes = NO_LABELS_YET  # of the labels taught in it


class SharedServer:
    """Requests what is missing or expired, and teaches the round before to all."""

    def __init__(self, slot: Shared, agreement: Agreement, codec: Codec) -> None:
        size, classes = agreement.public_size, agreement.classes
        self._slot, self._agreement, self._codec = slot, agreement, codec
        derives = codec.derives and slot.policy.caches
        self.state = SharedServerState(
            cache=CacheTable.empty(size, *slot.label_shape(classes)),
            holdings=Holdings.empty(agreement.clients, size, slot.policy.duration),
            target=np.zeros((size, classes), np.float32) if slot.has_targets else None,
            stamps=StampHistory.empty(size, agreement.clients) if derives else None,
        )
        self._held = _NOTHING  # the samples of the round before whose label is not in its sync: everybody had it

    def request(self, index: Index, round: int) -> Index:
        return self._slot.policy.request(self.state.cache, index, round)

    def broadcast(self, now: Round) -> Broadcast:
        state, sync = self.state, self.state.sync
        self._held = _NOTHING if sync is None else sync.index[sync.held]
        stamps = checksum(state.stamps.before) if state.stamps is not None else 0
        agreement = self._agreement.digest
        return Broadcast(now.number, now.attempt, now.request, sync, state.digest, agreement, stamps)

    def personal(self, now: Round, client: int, *, reset: bool) -> Iterable[Message]:
        state, held = self.state, self._held
        missing = held[state.holdings.lacks(client, held)]
        if len(missing) or reset:
            labels = Labels(missing, state.cache.value[missing])
            yield CatchUp(now.number, now.attempt, client, reset, labels)
        if state.stamps is not None and state.sync is not None:
            yield from self._history(now, client, state.stamps)

    def _history(self, now: Round, client: int, stamps: StampHistory) -> Iterable[History]:
        """What a client must know to derive the stamps as of two rounds ago; nothing, as a rule."""
        needed = stamps.needed(client, now.number - 2)
        if needed is None:
            yield History(now.number, now.attempt, client, now.number - 2, (), stamps.before)
        elif needed[1]:
            yield History(now.number, now.attempt, client, *needed, None)

    def close(self, now: Round, fresh: Labels, learner: Learner | None) -> Labels:
        if not len(now.index):
            learner = None  # a round about no sample teaches the model nothing
        hits = now.index[~member(now.index, now.request, self._agreement.public_size)]
        if self.state.target is None:
            # The model learns what the clients will decode, and of the hits what they decoded before.
            fresh = Labels(fresh.index, self._codec.decoded_by_clients(fresh.value))
            if learner is not None:
                learner.learn(_merged(Labels(hits, self.state.cache.value[hits]), fresh), now.number)
        else:
            fresh = self._taught(now, hits, fresh, self.state.target, learner)
        return self._commit(now, fresh)

    def _taught(self, now: Round, hits: Index, fresh: Labels, target: Values, learner: Learner | None) -> Labels:
        """Learn the targets; what is then taught, as the clients will decode it."""
        target[fresh.index] = fresh.mean if isinstance(fresh, Teachers) else fresh.value
        value = fresh.value
        if learner is not None:
            index = np.sort(np.concatenate([hits, fresh.index]))
            learner.learn(Labels(index, target[index]), now.number)
            if self._slot.teach == "model":
                value = learner.predict(fresh.index)
                check_distributions(value, "the server's model")
        return Labels(fresh.index, self._codec.decoded_by_clients(value))

    def _commit(self, now: Round, fresh: Labels) -> Labels:
        state = self.state
        before = state.cache.stamp.copy()
        sync = replace(self._slot.policy.commit(state.cache, fresh, now.index, now.number), attempt=now.attempt)
        if state.stamps is not None:
            state.stamps.before = before
            state.stamps.add(sync)
        if sync.signal is not None:
            state.holdings.commit(sync)
        taught = recall(state.cache, sync)
        state.sync, state.digest = sync, taught.digest()
        return taught

    def acknowledge(self, client: int, round: int) -> None:
        self.state.holdings.acknowledge(client, round)
        if self.state.stamps is not None:
            self.state.stamps.applied[client] = round

    def forget(self, client: int) -> None:
        self.state.holdings.forget(client)
        if self.state.stamps is not None:
            self.state.stamps.applied[client] = -1


def _merged(a: Labels, b: Labels) -> Labels:
    """The labels of disjoint samples, in their order."""
    if not len(a.index):
        return b
    index = np.concatenate([a.index, b.index])
    order = np.argsort(index, kind="stable")
    return Labels(index[order], np.concatenate([a.value, b.value])[order])


@dataclass(slots=True)
class SharedClientState:
    """What a client remembers of the labels that it was taught."""

    cache: CacheTable
    replay: StampReplay | None  # the stamps of the server's cache, where messages leave them out


@dataclass(frozen=True, slots=True)
class _Received:
    broadcast: Broadcast
    catch_up: CatchUp | None
    replay: StampReplay | None  # the client's, brought over the round of the sync


class SharedClient:
    """Brings its cache up to date, and rebuilds the labels of the round before."""

    def __init__(self, agreement: Agreement, codec: Codec) -> None:
        size = agreement.public_size
        self._codec = codec
        self.state = SharedClientState(
            CacheTable.empty(size, *codec.label), StampReplay.empty(size) if codec.derives else None
        )

    def read(self, broadcast: Frame, messages: Sequence[Message]) -> _Received:
        catch_up = next((message for message in messages if isinstance(message, CatchUp)), None)
        history = next((message for message in messages if isinstance(message, History)), None)
        context = Context(replay=self.state.replay, history=history)
        return _Received(read_broadcast(broadcast, self._codec, context), catch_up, context.after)

    def apply(self, received: _Received) -> Labels:
        self._check(received.broadcast, received.catch_up)
        cache, broadcast, catch_up = self.state.cache, received.broadcast, received.catch_up
        sync = broadcast.sync
        if catch_up is not None and catch_up.reset:
            cache.stamp[:] = ABSENT
        if sync is None:
            return Labels(_NOTHING, np.empty((0, *cache.value.shape[1:]), np.float32))
        if catch_up is not None:
            cache.value[catch_up.labels.index] = catch_up.labels.value
            cache.stamp[catch_up.labels.index] = sync.round
        teacher = recall(cache, sync)
        if teacher.digest() != broadcast.digest:
            raise OutOfStep(f"this client holds other labels of round {sync.round} than the server")
        store(cache, sync)
        if received.replay is not None:
            self.state.replay = received.replay
        return teacher

    def _check(self, broadcast: Broadcast, catch_up: CatchUp | None) -> None:
        check_samples(self._codec, broadcast.request)
        sync = broadcast.sync
        if sync is not None:
            if sync.round != broadcast.round - 1 or broadcast.round > LAST_ROUND:
                raise MessageError(f"round {broadcast.round} comes with the sync of round {sync.round}")
            check_samples(self._codec, sync.dropped)
            check_labels(self._codec, sync.index, sync.fresh)
        if catch_up is not None:
            check_labels(self._codec, catch_up.labels.index, catch_up.labels.value)


def read_broadcast(data: Frame, codec: Codec, context: Context) -> Broadcast:
    """The broadcast that a downlink begins with."""
    broadcast = codec.decode(data, context)
    assert isinstance(broadcast, Broadcast), "a client looks at the kinds before it reads"
    return broadcast


def check_samples(codec: Codec, index: Index) -> None:
    """Raise MessageError for a sample that is not in the public dataset."""
    if len(index) and int(index[-1]) >= codec.public_size:
        raise MessageError(f"the downlink names sample {index[-1]}; the public dataset has {codec.public_size}")


def check_labels(codec: Codec, index: Index, value: Values) -> None:
    """Raise MessageError for samples that there are not, or labels of another shape than what is taught."""
    check_samples(codec, index)
    if value.shape[1:] != codec.label:
        raise MessageError(f"the downlink has labels of shape {value.shape[1:]}, not {codec.label}")
