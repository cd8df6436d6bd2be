"""Deliberate bugs: the simulator must find each of them. A bug is a function that patches the software."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import pytest

from scarlet.arrays import Index, Labels
from scarlet.job import Job, Result
from scarlet.node import Node
from scarlet.protocol.cache import ABSENT, CacheTable, Duration
from scarlet.protocol.client import Client
from scarlet.protocol.holdings import Holdings
from scarlet.protocol.messages import Message, Report, Resync, Sync
from scarlet.protocol.server import Server
from scarlet.protocol.state import restore
from scarlet.store import Snapshot, Store

Bug = Callable[[pytest.MonkeyPatch], None]


def acknowledge_on_send(patch: pytest.MonkeyPatch) -> None:
    honest = Server.open_round

    def open_round(self: Server) -> dict[int, bytes]:
        downlinks = honest(self)
        for client in downlinks:
            self.state.downlink.holdings.acknowledge(client, self.state.round)
        return downlinks

    patch.setattr(Server, "open_round", open_round)


def answer_at_once_after_a_loss(patch: pytest.MonkeyPatch) -> None:
    honest = Client.reply

    def reply(self: Client, job: Job, result: Result) -> list[bytes]:
        left, self.state.abstains = self.state.abstains, 0
        replies = honest(self, job, result)
        self.state.abstains = max(0, left - 1)
        return replies

    patch.setattr(Client, "reply", reply)


def expire_a_round_early_in_the_request(patch: pytest.MonkeyPatch) -> None:
    def request(self: Duration, table: CacheTable, index: Index, round: int) -> Index:
        stamp = table.stamp[index]
        early: Index = index[~((stamp != ABSENT) & (round - stamp < self.duration))]
        return early

    patch.setattr(Duration, "request", request)


def digest_the_samples_but_not_the_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Labels, "digest", lambda self: blake2b(self.index.tobytes(), digest_size=8).digest())


def rename_without_sync(patch: pytest.MonkeyPatch) -> None:
    def install(self: Store, name: str, content: bytes) -> None:
        self._disk.write(f"{name}.part", content)
        self._disk.rename(f"{name}.part", name)

    patch.setattr(Store, "_install", install)


def add_a_duplicate_twice(patch: pytest.MonkeyPatch) -> None:
    honest = Server._added

    def added(self: Server, message: Message, data: bytes) -> str:
        if not isinstance(message, Report | Resync):
            self._here().answered.discard(message.client)
        return honest(self, message, data)

    patch.setattr(Server, "_added", added)


def forget_to_keep_the_reply(patch: pytest.MonkeyPatch) -> None:
    honest = Client.receive

    def receive(self: Client, downlink: bytes) -> Job | list[bytes]:
        self.state.answered = b""
        return honest(self, downlink)

    patch.setattr(Client, "receive", receive)


def take_an_expired_entry_for_held(patch: pytest.MonkeyPatch) -> None:
    honest = Holdings.commit

    def commit(self: Holdings, sync: Sync) -> None:
        before = self.drawn.copy()
        honest(self, sync)
        self.drawn |= before

    patch.setattr(Holdings, "commit", commit)


def save_before_the_answer(patch: pytest.MonkeyPatch) -> None:
    """A client that crashes has then learned, and does not know what it answered."""

    def finish(self: Node, job: Job, result: Result) -> list[bytes]:
        assert self._store is not None
        self._saves += 1
        self._store.save(Snapshot(self._saves, {}, {"client": self.arrays()}))
        return self.client.reply(job, result)

    patch.setattr(Node, "finish", finish)


def restore_a_client_without_its_model(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Node, "restore", lambda self, arrays: restore(self.client.state, arrays))


def keep_the_stamps_of_rounds_that_never_happened(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("scarlet.protocol.codec.checksum", lambda stamps: 0)
    patch.setattr("scarlet.protocol.downlink.shared.checksum", lambda stamps: 0)


BUGS: tuple[Bug, ...] = (
    acknowledge_on_send,
    answer_at_once_after_a_loss,
    expire_a_round_early_in_the_request,
    digest_the_samples_but_not_the_values,
    rename_without_sync,
    add_a_duplicate_twice,
    forget_to_keep_the_reply,
    take_an_expired_entry_for_held,
    save_before_the_answer,
    restore_a_client_without_its_model,
)
