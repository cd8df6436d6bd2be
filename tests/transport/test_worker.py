from __future__ import annotations

import os
import signal
from multiprocessing.process import BaseProcess

import pytest

from scarlet.protocol.method import Method
from scarlet.transport.worker import WorkerError
from tests.transport.five_clients import children, exchanged, server, transport


def kill(process: BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)


def test_a_worker_that_is_killed_is_an_error_of_one_line_and_close_leaves_no_child() -> None:
    clients = transport(2)
    victim, survivor = children()
    kill(victim)
    with pytest.raises(WorkerError) as caught:
        exchanged(clients, server().open_round())
    text = str(caught.value)
    assert text.startswith(f"worker process {victim.pid} died with exit code -9;") and "\n" not in text
    assert survivor.is_alive()
    clients.close()
    assert children() == [] and not survivor.is_alive()


def test_a_worker_that_is_killed_is_noticed_when_the_digests_are_asked_for() -> None:
    with transport(2) as clients:
        victim = children()[0]
        kill(victim)
        with pytest.raises(WorkerError, match=f"worker process {victim.pid} died"):
            clients.digests()


def cannot_be_made() -> Method:
    raise KeyError("no such method")


def test_an_error_while_workers_start_leaves_no_child() -> None:
    with pytest.raises(WorkerError, match="KeyError: 'no such method'"):
        transport(2, method=cannot_be_made)
    assert children() == []


def test_closing_a_second_time_does_nothing() -> None:
    clients = transport(2)
    assert len(children()) == 2
    for _ in range(2):
        clients.close()
        assert children() == []


def test_a_transport_ends_its_workers_when_the_block_it_serves_fails() -> None:
    with pytest.raises(KeyError), transport(2):
        assert len(children()) == 2
        raise KeyError("something of the caller's")
    assert children() == []
