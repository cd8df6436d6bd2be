"""A codec knows the messages of its method, each by a number of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from scarlet.errors import ConfigError, MessageError
from scarlet.methods.parts.mean import mean
from scarlet.methods.registry import METHODS
from scarlet.protocol.codec import OWN_KINDS, Layout, Layouts
from scarlet.protocol.codec_registry import CODECS, check_codec, codec
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.layouts import reference
from scarlet.protocol.messages import CatchUp, Report
from scarlet.protocol.method import Method
from scarlet.protocol.uplink.labels import Answer, SoftLabels
from scarlet.wire import frame
from tests.protocol.federation import AGREEMENT
from tests.protocol.messages import ANSWER, encoded

PLAIN = Method(mean())


@pytest.mark.parametrize("kind", [0, 6, 7, 8, 9, OWN_KINDS, 255])
def test_a_kind_that_nobody_sends_is_refused(kind: int) -> None:
    with pytest.raises(MessageError, match=f"kind {kind}, which nobody sends here"):
        codec("reference", PLAIN, AGREEMENT).decode(frame.wrap(kind, 1, 0, encoded(ANSWER)[frame.SIZE :]))


@dataclass(frozen=True, slots=True)
class Clashing(Shared):
    """A downlink with one more message."""

    kind: int = 2

    @property
    def layouts(self) -> Sequence[Layouts]:
        of_answers: Layout[Answer] = replace(SoftLabels().layouts[0]["reference"], kind=self.kind, message=Lecture)
        return ({"reference": of_answers},)


class Lecture:
    """A message that the package does not have."""


@pytest.mark.parametrize(("kind", "other"), [(1, "Broadcast"), (3, "Report"), (2, "Answer")])
def test_two_messages_of_one_kind_are_a_config_error_that_names_both(kind: int, other: str) -> None:
    with pytest.raises(ConfigError, match=rf"^kind must differ[^\n]*got {kind} for ") as caught:
        codec("reference", replace(PLAIN, downlink=Clashing(kind=kind)), AGREEMENT)
    assert other in str(caught.value)
    assert "Lecture" in str(caught.value)
    assert "from 64 to 255 are free" in str(caught.value)


def test_a_kind_that_is_free_is_taken() -> None:
    known = codec("reference", replace(PLAIN, downlink=Clashing(kind=OWN_KINDS)), AGREEMENT)
    assert known.layout_of(OWN_KINDS).message is Lecture


@pytest.mark.parametrize("kind", [-1, 0, 256])
def test_a_kind_that_does_not_fit_a_byte_is_a_config_error(kind: int) -> None:
    with pytest.raises(ConfigError, match=rf"^kind must be from 1 to 255, got {kind} for Lecture"):
        codec("reference", replace(PLAIN, downlink=Clashing(kind=kind)), AGREEMENT)


def test_an_answer_without_a_layout_is_a_config_error_that_names_it_and_the_codec() -> None:
    @dataclass(frozen=True, slots=True)
    class OneCodec(SoftLabels):
        @property
        def layouts(self) -> Sequence[Layouts]:
            return ({"reference": SoftLabels().layouts[0]["reference"]},)

    method = replace(PLAIN, uplink=OneCodec())
    assert codec("reference", method, AGREEMENT).layouts[Answer].kind == 2
    with pytest.raises(ConfigError, match=r"^Answer has no layout in codec 'compact'[^\n]*$"):
        codec("compact", method, AGREEMENT)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("method", METHODS)
def test_the_kinds_of_every_method_are_the_packages_own(method: str, name: str) -> None:
    known = codec(name, METHODS[method].build(METHODS[method].config()), AGREEMENT)
    assert all(0 < kind < OWN_KINDS for kind in known.kinds)
    assert {layout.kind: layout for layout in known.layouts.values()} == known.kinds
    assert known.layouts[Report] is reference.REPORT


def test_only_what_the_server_sends_is_from_the_server() -> None:
    known = codec("reference", PLAIN, AGREEMENT).layouts
    assert known[CatchUp].from_server
    assert not known[Answer].from_server


@pytest.mark.parametrize("classes", [2, 3, 10, 100, 1000])
def test_labels_have_32_bits_or_two_levels_for_each_class_unless_the_method_says_otherwise(classes: int) -> None:
    agreement = replace(AGREEMENT, classes=classes)
    plain, compact = (codec(name, PLAIN, agreement) for name in ("reference", "compact"))
    assert (plain.uplink_bits, plain.downlink_bits) == (32, 32)
    assert compact.uplink_bits == compact.downlink_bits == max(4, math.ceil(math.log2(classes)) + 1)
    own = codec("compact", replace(PLAIN, uplink_bits=1, downlink_bits=7), agreement)
    assert (own.uplink_bits, own.downlink_bits) == (1, 7)


def test_an_unknown_codec_is_a_config_error_with_the_nearest_name() -> None:
    for check in (lambda: check_codec("referense"), lambda: codec("referense", PLAIN, AGREEMENT)):
        with pytest.raises(ConfigError, match=r"unknown codec 'referense': did you mean 'reference'\?"):
            check()


@pytest.mark.parametrize("bits", [0, -1, 33])
@pytest.mark.parametrize("name", ["uplink_bits", "downlink_bits"])
def test_bits_that_there_are_not_are_a_config_error_that_names_them(name: str, bits: int) -> None:
    expected = rf"^{name} must be from 1 to 32, got {bits}; 32 sends float32 as it is$"
    with pytest.raises(ConfigError, match=expected):
        check_codec("compact", **{name: bits})
    with pytest.raises(ConfigError, match=expected):
        codec("reference", replace(PLAIN, **{name: bits}), AGREEMENT)  # type: ignore[arg-type]
