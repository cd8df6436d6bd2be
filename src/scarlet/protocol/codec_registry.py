"""The codecs by name, and what each has to say of a method's messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from scarlet.errors import ConfigError, unknown
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec import OWN_KINDS, Codec, Layout, Layouts
from scarlet.protocol.layouts import compact, reference
from scarlet.protocol.method import Method
from scarlet.protocol.stamps import Draws
from scarlet.wire.quantise import check_bits


@dataclass(frozen=True, slots=True)
class Form:
    """What is special about a codec, beside its layouts."""

    derives: bool
    slack: int
    usual_bits: Callable[[int], int]  # classes -> bits of each entry of a label, unless somebody says otherwise


CODECS = {
    "reference": Form(derives=False, slack=0, usual_bits=lambda classes: 32),
    # Two levels for each class at least, so that a uniform label is representable.
    "compact": Form(derives=True, slack=1024, usual_bits=lambda classes: max(4, math.ceil(math.log2(classes)) + 1)),
}

_EVERY_METHOD: tuple[Layouts, ...] = (
    {"reference": reference.BROADCAST, "compact": compact.BROADCAST},
    {"reference": reference.REPORT, "compact": reference.REPORT},
    {"reference": reference.RESYNC, "compact": reference.RESYNC},
)


def check_codec(name: str, uplink_bits: int | None = None, downlink_bits: int | None = None) -> None:
    """Raise ConfigError for a codec that there is not, or bits that no codec can send."""
    if name not in CODECS:
        raise unknown("codec", name, CODECS)
    for option, bits in (("uplink_bits", uplink_bits), ("downlink_bits", downlink_bits)):
        if bits is not None:
            check_bits(option, bits)


def codec(name: str, method: Method, agreement: Agreement) -> Codec:
    """The codec of that name for the messages of a method; its labels have the method's bits, or the codec's own."""
    check_codec(name, method.uplink_bits, method.downlink_bits)
    form = CODECS[name]
    usual = form.usual_bits(agreement.classes)
    known = (*_EVERY_METHOD, *method.downlink.layouts, *method.uplink.layouts)
    kinds = _by_kind(layouts[name] for layouts in known if name in layouts)
    layouts = {layout.message: layout for layout in kinds.values()}
    if method.uplink.message not in layouts:
        raise ConfigError(
            f"{method.uplink.message.__name__} has no layout in codec {name!r}; "
            "give the answer of the uplink one, or use another codec"
        )
    return Codec(
        name=name,
        draws=Draws(agreement, method.select, method.downlink.policy),
        label=method.downlink.label_shape(agreement.classes),
        uplink_bits=usual if method.uplink_bits is None else method.uplink_bits,
        downlink_bits=usual if method.downlink_bits is None else method.downlink_bits,
        derives=form.derives,
        slack=form.slack,
        layouts=layouts,
        kinds=kinds,
    )


def _by_kind(layouts: Iterable[Layout[Any]]) -> dict[int, Layout[Any]]:
    """The layouts by the number of their message; ConfigError where two messages have the same."""
    kinds: dict[int, Layout[Any]] = {}
    for layout in layouts:
        if not 0 < layout.kind < 256:
            raise ConfigError(f"kind must be from 1 to 255, got {layout.kind} for {layout.message.__name__}")
        other = kinds.setdefault(layout.kind, layout)
        if other is not layout:
            raise ConfigError(
                f"kind must differ between messages, got {layout.kind} for {other.message.__name__} and "
                f"{layout.message.__name__}; kinds from {OWN_KINDS} to 255 are free for methods of your own"
            )
    return kinds
