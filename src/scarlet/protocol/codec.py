"""A codec turns messages into bytes and back, by a layout for each message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from scarlet.arrays import Index, Values
from scarlet.errors import MessageError
from scarlet.protocol.cache import OutOfStep
from scarlet.protocol.messages import History, Message, Stamps
from scarlet.protocol.stamps import Draws, StampReplay, checksum
from scarlet.wire import frame
from scarlet.wire.body import Body, i8
from scarlet.wire.frame import Frame
from scarlet.wire.ledger import Column
from scarlet.wire.quantise import quantise

M = TypeVar("M", bound=Message)

OWN_KINDS = 64  # the kinds below are this package's; those from here to 255 are free for other methods


@dataclass(slots=True)
class Context:
    """What a side knows of a round beside the message that it reads or writes."""

    request: Index = field(default_factory=lambda: np.empty(0, np.int64))  # of the round under way
    replay: StampReplay | None = None  # a client's
    history: History | None = None
    after: StampReplay | None = None  # what reading a broadcast makes of the replay
    _request_bytes: bytes | None = None

    @property
    def request_bytes(self) -> bytes:
        """The request as it is written."""
        if self._request_bytes is None:
            self._request_bytes = i8(self.request)
        return self._request_bytes

    def before(self, draws: Draws, round: int, expected: int) -> Stamps:
        """A copy of the stamps that a round's sync begins with; OutOfStep if their checksum is not the server's."""
        if self.replay is None:
            raise MessageError("a broadcast is for clients")
        stamps = self.replay.until(draws, round - 1, self.history)
        if checksum(stamps) != expected:
            raise OutOfStep(f"the stamps of round {round - 1} are not those of the server")
        return stamps


@dataclass(frozen=True, slots=True)
class Layout(Generic[M]):
    """How one message becomes bytes in one codec."""

    message: type[M]
    kind: int  # its number in the frame, from OWN_KINDS on where a method of your own adds the message
    column: Column  # of the ledger
    fixed: int  # bytes of its body that are no payload
    write: Callable[[M, Codec, Context], bytes]
    read: Callable[[Body, Codec, Context], M]
    is_empty: Callable[[M], bool] = lambda message: False  # whether it has no payload at all, only bookkeeping

    @property
    def from_server(self) -> bool:
        return self.column in ("downlink", "catch_up")


Layouts = Mapping[str, Layout[Any]]  # codec -> how it lays one message out; a codec may have no use for a message


@dataclass(frozen=True, slots=True)
class Codec:
    """Turns the messages of one federation into bytes and back."""

    name: str
    draws: Draws
    label: tuple[int, ...]  # the shape of what is taught of one sample
    uplink_bits: int  # of each entry of a soft-label
    downlink_bits: int
    derives: bool  # whether it leaves out what the other side can derive, and therefore needs a context
    slack: int  # bytes that a message may have beyond its plain form
    layouts: Mapping[type, Layout[Any]]
    kinds: Mapping[int, Layout[Any]]

    @property
    def public_size(self) -> int:
        return self.draws.agreement.public_size

    @property
    def classes(self) -> int:
        return self.draws.agreement.classes

    def layout_of(self, kind: int) -> Layout[Any]:
        """The layout of a kind, or a MessageError if there is none."""
        if kind not in self.kinds:
            raise MessageError(f"the message is of kind {kind}, which nobody sends here")
        return self.kinds[kind]

    def encode(self, message: Message, context: Context | None = None) -> bytes:
        layout = self.layouts[type(message)]
        body = layout.write(message, self, context or Context())
        return frame.wrap(layout.kind, message.round, message.attempt, body)

    def decode(self, data: bytes | Frame, context: Context | None = None) -> Message:
        """The message in `data`, or a MessageError that says what is wrong with it."""
        outer = frame.unwrap(data)
        layout, body = self.layout_of(outer.kind), Body(outer.body, outer.round, outer.attempt)
        message: Message = layout.read(body, self, context or Context())
        body.end()
        return message

    def payload(self, message: Message, data: bytes) -> int:
        """The part of the encoded message that carries the method's own content."""
        layout = self.layouts[type(message)]
        # Not by the message's content: a report need not be written as this side would write it.
        return 0 if layout.is_empty(message) else len(data) - frame.SIZE - layout.fixed

    def decoded_by_clients(self, value: Values) -> Values:
        """Soft-labels as the clients will decode them, which is what the server must go on with."""
        return quantise(value, self.downlink_bits)

    def decoded_by_server(self, value: Values) -> Values:
        """Soft-labels as the server will decode them."""
        return quantise(value, self.uplink_bits)


def shape_of(value: Values) -> tuple[int, int]:
    """Teachers and classes of a label, as a head has them; no teachers if it is one distribution."""
    return (0 if value.ndim == 2 else value.shape[1]), value.shape[-1]


def shape_from(samples: int, teachers: int, classes: int) -> tuple[int, ...]:
    """The reverse of `shape_of`, for so many samples."""
    return (samples, teachers, classes) if teachers else (samples, classes)
