"""What the server and a site put into messages of Flower: plain values around the bytes of the protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from scarlet.errors import MessageError
from scarlet.protocol.agreement import Agreement

HELLO, ROUND = "hello", "round"  # the actions of a site: query.hello and train.round
REFUSED = "refused"  # query.refused: the server tells a site why it is not asked

Values: TypeAlias = Mapping[str, Any]  # str, int, bool, bytes, or a list of bytes

# Why a site does not take part. No more than this word leaves the site: what it means there is in the site's own log.
Code: TypeAlias = Literal[
    "agreement differs",
    "public dataset differs",
    "versions differ",
    "classes do not match",
    "data cannot be read",
    "refused by policy",
    "state directory cannot be used",
    "options cannot be used",
    "message cannot be read",
    "failed",
]
CODES: tuple[Code, ...] = get_args(Code)


@dataclass(frozen=True, slots=True)
class Hello:
    """The server introduces itself."""

    agreement: Agreement
    version: str  # of scarlet

    def values(self) -> Values:
        return {"agreement": _agreement_text(self.agreement), "version": self.version}

    @staticmethod
    def read(values: Values) -> Hello:
        return Hello(_agreement(values), str(values.get("version", "")))


@dataclass(frozen=True, slots=True)
class Ask:
    """A client's downlink, with all that a process which knows nothing yet must know."""

    agreement: Agreement
    client: int
    known: bool  # it has answered before, so a client that finds nothing saved has lost its state
    downlink: bytes

    def values(self) -> Values:
        return {
            "agreement": _agreement_text(self.agreement),
            "client": self.client,
            "known": self.known,
            "downlink": self.downlink,
        }

    @staticmethod
    def read(values: Values) -> Ask:
        client, known, downlink = (values.get(name) for name in ("client", "known", "downlink"))
        if not isinstance(client, int) or not isinstance(known, bool) or not isinstance(downlink, bytes):
            raise MessageError("the server's message lacks a client, a downlink, or whether the client is known")
        return Ask(_agreement(values), client, known, downlink)


@dataclass(frozen=True, slots=True)
class Reply:
    """What leaves a site: the client that it says it is with its messages, or why it does not take part."""

    client: int = -1
    messages: tuple[bytes, ...] = ()
    code: Code | None = None

    def values(self) -> Values:
        if self.code is not None:
            return {"code": self.code}
        return {"client": self.client, "messages": list(self.messages)}

    @staticmethod
    def read(values: Values) -> Reply:
        code, client, messages = (values.get(name) for name in ("code", "client", "messages"))
        if code is not None:
            return Reply(code=next((known for known in CODES if known == code), "failed"))
        if not isinstance(client, int) or not isinstance(messages, list):
            raise MessageError("a site's message lacks a client or its answers")
        if not all(isinstance(message, bytes) and message for message in messages):
            raise MessageError("a site's answers are not bytes")
        return Reply(client, tuple(messages))


def _agreement_text(agreement: Agreement) -> str:
    return json.dumps(asdict(agreement))


def _agreement(values: Values) -> Agreement:
    """An agreement; MessageError unless it has each field, of its type."""
    try:
        table = json.loads(str(values.get("agreement")))
        types = {field.name: int if field.type == "int" else str for field in fields(Agreement)}
        if table.keys() != types.keys() or any(type(table[name]) is not kind for name, kind in types.items()):
            raise ValueError
    except (ValueError, AttributeError):
        raise MessageError("the server's agreement cannot be read; is it of another version of scarlet?") from None
    return Agreement(**table)
