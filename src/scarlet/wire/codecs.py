"""The codecs by name."""

from __future__ import annotations

from scarlet.errors import unknown
from scarlet.wire.codec import Codec
from scarlet.wire.compact import Compact
from scarlet.wire.reference import Reference

CODECS: dict[str, type[Reference]] = {"reference": Reference, "compact": Compact}


def codec(
    name: str, uplink_bits: int | None = None, downlink_bits: int | None = None, *, classes: int | None = None
) -> Codec:
    """The codec of that name, for labels of so many bits an entry; None: as many as it likes for so many classes."""
    if name not in CODECS:
        raise unknown("codec", name, CODECS)
    return CODECS[name](uplink_bits, downlink_bits, classes)
