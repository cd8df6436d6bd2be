from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import scarlet
from scarlet.errors import ConfigError
from scarlet.experiment.config_json import flatten
from scarlet.methods.parts.mean import mean
from scarlet.methods.registry import METHODS
from scarlet.protocol.method import Method


@dataclass(frozen=True)
class Options:
    strength: float = 1.0


@dataclass(frozen=True)
class Clashing:
    lr: float = 1.0


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


def build(options: object) -> Method:
    return Method(mean())


def test_two_methods_cannot_share_their_options_because_these_tell_them_apart() -> None:
    scarlet.register("one", "One", Options, build)
    scarlet.register("one", "One", Options, build)  # again, as a notebook does
    with pytest.raises(ConfigError, match="Options is that of 'one'; derive a class from it"):
        scarlet.register("other", "Other", Options, build)


def test_an_option_of_every_run_is_not_a_methods_own_because_a_file_of_options_has_it_once() -> None:
    scarlet.register("mine", "Mine", Clashing, build)
    with pytest.raises(ConfigError, match=r"^lr is an option of every run, and of method 'mine' too; rename"):
        flatten(Clashing(), scarlet.Config())
