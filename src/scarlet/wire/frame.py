"""The frame around every message: what it is, which round it belongs to, and whether it arrived whole."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from zlib_ng.zlib_ng import crc32

from scarlet.errors import MessageError

MAGIC = b"SCRL"
VERSION = 4
_HEADER = struct.Struct("<4sBBHIII")  # magic, version, kind, attempt, round, length of the body, CRC-32
_CHECKED = _HEADER.size - 4  # the checksum covers all of the header before itself, and the body

SIZE = _HEADER.size


@dataclass(frozen=True, slots=True)
class Frame:
    """A message whose body has not been read yet."""

    kind: int
    round: int
    attempt: int
    body: memoryview


def wrap(kind: int, round: int, attempt: int, body: bytes) -> bytes:
    """Frame a body."""
    header = _HEADER.pack(MAGIC, VERSION, kind, attempt, round, len(body), 0)[:_CHECKED]
    return header + struct.pack("<I", crc32(body, crc32(header))) + body


def split(data: bytes) -> list[bytes]:
    """The messages that were sent one after the other, by the lengths that they announce."""
    parts, at = [], 0
    while at < len(data):
        length = _HEADER.unpack_from(data, at)[5] if len(data) - at >= SIZE else 0
        parts.append(data[at : at + SIZE + length])
        at += SIZE + length
    return parts


def round_of(data: bytes) -> tuple[int, int]:
    """The round and the attempt that the first message in `data` belongs to, if it is one."""
    if len(data) < SIZE:
        raise MessageError(f"the message has {len(data)} bytes, fewer than the {SIZE} of a frame")
    _, _, _, attempt, round, _, _ = _HEADER.unpack_from(data)
    return round, attempt


def unwrap(message: bytes | Frame) -> Frame:
    """Read and check a frame, without looking into its body; what is one already was checked."""
    if isinstance(message, Frame):
        return message
    if len(message) < SIZE:
        raise MessageError(f"the message has {len(message)} bytes, fewer than the {SIZE} of a frame")
    magic, version, kind, attempt, round, length, checksum = _HEADER.unpack_from(message)
    if magic != MAGIC:
        raise MessageError(f"the message begins with {magic!r}, not with {MAGIC!r}")
    if version != VERSION:
        raise MessageError(f"the message is of version {version}; this side speaks version {VERSION}")
    if length != len(message) - SIZE:
        raise MessageError(f"the message announces {length} bytes and carries {len(message) - SIZE}")
    body = memoryview(message)[SIZE:]
    if checksum != crc32(body, crc32(message[:_CHECKED])):
        raise MessageError("the message's checksum is wrong: it was changed on its way")
    return Frame(kind, round, attempt, body)
