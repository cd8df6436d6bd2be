from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import get_args, get_type_hints

import pytest

from scarlet.config import Config
from scarlet.errors import ConfigError
from scarlet.experiment.cache_simulation import SimulateConfig
from scarlet.experiment.costs import CostsConfig
from scarlet.methods.dsfl import DsflConfig
from scarlet.methods.scarlet import ScarletConfig

AT_LEAST_1 = (
    "clients",
    "test_per_client",
    "rounds",
    "batch_size",
    "eval_every",
    "samples_per_client",
    "public_size",
    "public_per_round",
    "workers",
    "clients_in_memory",
    "image_size",
)
AT_LEAST_0 = ("local_epochs", "distil_epochs", "seed", "checkpoint_every", "abstain")
POSITIVE = ("alpha", "lr", "distil_lr", "deadline", "stop_at_mb", "stop_at_accuracy", "stop_at_seconds")
SHARES_BELOW_1 = ("dropout", "hostile", "wipe", "momentum", "private_validation", "public_validation")
AT_LEAST_0_FLOAT = ("weight_decay",)
OF_THE_CLIENTS = ("participation", "min_answers")
BITS = ("uplink_bits", "downlink_bits")

BAD = [
    *[(Config(), name, value, "1 or more") for name in AT_LEAST_1 for value in (0, -3)],
    *[(Config(), name, -1, "0 or more") for name in AT_LEAST_0],
    *[
        (Config(), name, value, "more than 0")
        for name in POSITIVE
        for value in (0.0, -0.1, math.nan, math.inf, -math.inf)
    ],
    *[
        (Config(), name, value, "at least 0 and less than 1")
        for name in SHARES_BELOW_1
        for value in (-0.1, 1.0, 1.5, math.nan, math.inf)
    ],
    *[(good, name, value, "from 1 to 32") for good in (Config(), CostsConfig()) for name in BITS for value in (0, 33)],
    *[
        (good, "participation", value, "more than 0 and at most 1")
        for good in (Config(), CostsConfig())
        for value in (0.0, -0.5, 1.001, math.nan, math.inf)
    ],
    *[(Config(), "min_answers", value, "from 1 to the 10 clients that a round asks") for value in (0, -1, 11)],
    (Config(participation=0.25, clients=12), "min_answers", 4, "from 1 to the 3 clients that a round asks"),
    (Config(participation=0.01), "min_answers", 2, "from 1 to the 1 clients that a round asks"),
    *[(Config(), "weight_decay", value, "0 or more") for value in (-0.1, math.nan, math.inf)],
    (Config(), "stop_at_accuracy", 1.5, "at most 1"),
    (Config(public_validation=0.1), "stop_when", "soon", "converged"),
    (Config(), "model_shares", (0.5, 0.6), "one for each of the 1 models"),
    (Config(model="cnn,mlp"), "model_shares", (0.5, 0.6), "sum to 1"),
    (Config(model="cnn,mlp"), "model_shares", (1.5, -0.5), "0 or more"),
    (Config(), "attack", "none", "flip or random"),
    (Config(), "engine", "fast", "auto, contiguous, channels-last, compiled or batched"),
    (Config(public_size=100), "public_per_round", 101, "at most the 100 public samples"),
    (ScarletConfig(), "beta", 0.0, "more than 0"),
    (ScarletConfig(), "cache_duration", -1, "0 or more"),
    (ScarletConfig(), "on_expiry", "keep", "delete or refresh"),
    (DsflConfig(), "temperature", 0.0, "more than 0"),
    *[(CostsConfig(), name, 0, "1 or more") for name in ("clients", "public_size", "public_per_round")],
    (CostsConfig(), "rounds", 1, "2 or more"),
    (CostsConfig(), "classes", 1, "2 or more"),
    (CostsConfig(), "seed", -1, "0 or more"),
    (CostsConfig(), "public_per_round", 10_001, "at most the 10000 public samples"),
    (CostsConfig(), "cache_duration", -1, "0 or more"),
    (CostsConfig(), "on_expiry", "keep", "delete or refresh"),
    (CostsConfig(), "codec", "zip", "known: "),
    *[(SimulateConfig(), name, 0, "1 or more") for name in ("public_size", "public_per_round", "rounds")],
    (SimulateConfig(), "seed", -1, "0 or more"),
    (SimulateConfig(), "public_per_round", 10_001, "at most the 10000 public samples"),
    (SimulateConfig(), "on_expiry", "keep", "delete or refresh"),
]


@pytest.mark.parametrize(
    ("good", "name", "value", "rule"),
    BAD,
    ids=[f"{type(good).__name__}.{name}={value}" for good, name, value, _ in BAD],
)
def test_a_bad_value_is_an_error_of_one_line_that_names_it(good: object, name: str, value: object, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        replace(good, **{name: value})  # type: ignore[type-var]
    text = str(caught.value)
    assert "\n" not in text
    assert re.search(rf"\b{name}\b", text)
    assert re.search(rf"(?<![\w.]){re.escape(str(value))}(?![\w.]*\w)", text)
    assert rule in text


@pytest.mark.parametrize(("good", "name", "value", "rule"), [each for each in BAD if "codec" not in each])
def test_the_error_knows_the_option_that_it_is_about(good: object, name: str, value: object, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        replace(good, **{name: value})  # type: ignore[type-var]
    assert caught.value.option == name


def test_every_number_of_an_experiment_has_a_rule() -> None:
    ruled = {*AT_LEAST_1, *AT_LEAST_0, *POSITIVE, *SHARES_BELOW_1, *OF_THE_CLIENTS, *BITS, *AT_LEAST_0_FLOAT}
    hints = get_type_hints(Config)
    assert {name for name, hint in hints.items() if {int, float} & {hint, *get_args(hint)}} == ruled


@pytest.mark.parametrize("name", AT_LEAST_1)
def test_1_is_the_least_of_what_must_be_1_or_more(name: str) -> None:
    assert getattr(replace(Config(), **{name: 1}), name) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("name", AT_LEAST_0)
def test_0_is_the_least_of_what_must_be_0_or_more(name: str) -> None:
    assert getattr(replace(Config(), **{name: 0}), name) == 0  # type: ignore[arg-type]


def test_as_many_answers_may_be_needed_as_clients_are_asked() -> None:
    assert Config(clients=12, participation=0.25, min_answers=3).min_answers == 3
    assert Config(clients=12, participation=1, min_answers=12).min_answers == 12


@pytest.mark.parametrize("name", SHARES_BELOW_1)
def test_a_share_of_0_is_none(name: str) -> None:
    assert getattr(replace(Config(), **{name: 0.0}), name) == 0  # type: ignore[arg-type]


def test_a_round_may_draw_the_whole_public_set_and_no_more() -> None:
    assert Config(public_size=100, public_per_round=100).public_per_round == 100
    assert Config(public_per_round=10**6).public_size is None  # how much there is, only the data can say


def test_no_duration_at_all_cannot_be_simulated() -> None:
    with pytest.raises(ConfigError, match="durations must name at least one value of D, got none"):
        SimulateConfig(durations=())


def test_every_duration_to_simulate_obeys_the_rule_of_durations() -> None:
    with pytest.raises(ConfigError, match="cache_duration must be 0 or more, got -2"):
        SimulateConfig(durations=(25, -2))
