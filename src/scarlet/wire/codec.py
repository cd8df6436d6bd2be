"""Codecs turn messages into bytes and back."""

from __future__ import annotations

from typing import Protocol

from scarlet.protocol.schedule import Known
from scarlet.protocol.types import (
    Accepted,
    Broadcast,
    CatchUp,
    History,
    Lesson,
    Message,
    Parameters,
    Report,
    Resync,
    Uplink,
    Values,
)
from scarlet.wire.frame import Frame

KINDS = {Broadcast: 1, Uplink: 2, Report: 3, CatchUp: 4, Resync: 5, Parameters: 6, Lesson: 7, Accepted: 8, History: 9}
FROM_CLIENTS = frozenset(KINDS[kind] for kind in (Uplink, Report, Resync, Parameters))


class Codec(Protocol):
    """Turns messages into bytes and back."""

    uplink_bits: int
    downlink_bits: int
    derives: bool  # whether it leaves out what the other side can work out, and therefore needs `known`

    def encode(self, message: Message, known: Known | None = None) -> bytes: ...

    def decode(self, data: bytes | Frame, known: Known | None = None) -> Message:
        """The message in `data`, or a MessageError that says what is wrong with it."""
        ...

    def size(self, message: Message) -> int:
        """The most bytes that a message with as many labels can have, frame included."""
        ...

    def payload(self, message: Message, data: bytes) -> int:
        """The part of the encoded message that carries the method's own content."""
        ...

    def heard_by_clients(self, value: Values) -> Values:
        """Labels as the clients will decode them, which is what the server must go on with."""
        ...

    def heard_by_server(self, value: Values) -> Values:
        """Labels as the server will decode them."""
        ...
