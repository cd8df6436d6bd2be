"""The presets say what the paper says, and every one of them can be run."""

from __future__ import annotations

from dataclasses import fields

import pytest

from scarlet import CentralizedConfig, CfdConfig, CometConfig, DsflConfig, ScarletConfig, SelectiveFdConfig
from scarlet.config import Config
from scarlet.data.datasets import info
from scarlet.errors import ConfigError
from scarlet.methods.registry import METHODS, check_method, entry
from scarlet.presets import PRESETS, apply, preset

EXPERIMENTS = [name for name, each in PRESETS.items() if "private" in each.shared]


def names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_names_only_options_that_exist(name: str) -> None:
    chosen = PRESETS[name]
    assert chosen.name == name and chosen.about
    assert chosen.shared.keys() <= names(Config)
    for method, own in chosen.methods.items():
        assert own.keys() <= names(entry(method).config), method


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_builds_every_method(name: str) -> None:
    config, methods = preset(name)
    assert methods.keys() == METHODS.keys()
    for method, options in methods.items():
        assert type(options) is METHODS[method].config
        check_method(METHODS[method].build(options), config.asked)


# The paper: its tables of data sets, of models and of hyper-parameters, and sections IV-A and IV-B; the batch size and
# the epochs of distillation are those of the authors' code.
@pytest.mark.parametrize(
    ("name", "private", "public", "model", "images", "alpha", "rounds", "beta", "temperature", "clusters", "tau"),
    [
        ("cifar10-a0.05", "cifar10", "cifar100", "resnet20", 50_000, 0.05, 3000, 1.5, 0.1, 2, 0.0625),
        ("cifar10-a0.3", "cifar10", "cifar100", "resnet20", 50_000, 0.3, 3000, 1.0, 0.1, 2, 0.0625),
        ("cifar100-a0.05", "cifar100", "tiny-imagenet", "resnet32", 50_000, 0.05, 3000, 1.25, 0.01, 2, 0.0625),
        (
            *("tiny-imagenet-a0.05", "tiny-imagenet", "caltech256", "resnet18", 100_000, 0.05),
            *(1000, 1.25, 0.05, 3, 0.03125),
        ),
    ],
)
def test_an_experiment_is_that_of_the_paper(
    name: str,
    private: str,
    public: str,
    model: str,
    images: int,
    alpha: float,
    rounds: int,
    beta: float,
    temperature: float,
    clusters: int,
    tau: float,
) -> None:
    config, methods = preset(name)
    assert config == Config(
        private=private,
        alpha=alpha,
        clients=100,
        samples_per_client=images // 100,
        test_per_client=100,
        public_size=10_000,
        public_per_round=1_000,
        rounds=rounds,
        local_epochs=5,
        distil_epochs=5,
        lr=0.1,
        distil_lr=0.1,
        batch_size=100,
        codec="reference",
        participation=1.0,
    )
    assert (info(private).public, info(private).model) == (public, model), "which the config leaves to the data set"
    assert methods["scarlet"] == ScarletConfig(beta=beta, cache_duration=50, on_expiry="delete", average="mean")
    assert methods["dsfl"] == DsflConfig(temperature=temperature, average="mean")
    assert methods["cfd"] == CfdConfig(
        uplink_bits=1,
        downlink_bits=32,
        delta=False,
        restart=False,
        subset="drawn",
        cache_duration=0,
        on_expiry="delete",
    )
    assert methods["comet"] == CometConfig(
        clusters=clusters, distil_weight=1.0, assign="server", cache_duration=0, on_expiry="delete"
    )
    assert methods["selective-fd"] == SelectiveFdConfig(
        tau_client=tau, tau_server=2.0, kernel_width=5.0, selector="paper", cache_duration=0, on_expiry="delete"
    )
    assert methods["centralized"] == CentralizedConfig(central_lr=0.01)


def test_every_combination_that_the_paper_reports_has_a_preset() -> None:
    assert {(preset(name)[0].private, preset(name)[0].alpha) for name in EXPERIMENTS} == {
        ("cifar10", 0.05),
        ("cifar10", 0.3),
        ("cifar100", 0.05),
        ("tiny-imagenet", 0.05),
    }


@pytest.mark.parametrize("name", ["paper", *EXPERIMENTS])
def test_whoever_can_cache_deletes_what_has_expired_as_the_paper_does(name: str) -> None:
    able = {method for method, each in METHODS.items() if "on_expiry" in names(each.config)}
    _, methods = preset(name)
    assert {method for method in able if methods[method].on_expiry == "delete"} == able


def test_the_preset_paper_leaves_the_data_and_all_else_alone() -> None:
    config, methods = preset("paper")
    assert config == Config(codec="reference")
    assert methods["scarlet"] == ScarletConfig(on_expiry="delete")


@pytest.mark.parametrize(
    ("name", "method", "options"),
    [
        (
            "cfd-original",
            "cfd",
            CfdConfig(uplink_bits=1, downlink_bits=1, delta=True, restart=True, subset="fixed"),
        ),
        (
            "selective-fd-original",
            "selective-fd",
            SelectiveFdConfig(tau_client=0.25, tau_server=2.0, selector="original"),
        ),
    ],
)
def test_an_original_changes_its_method_and_nothing_else(name: str, method: str, options: object) -> None:
    config, methods = preset(name)
    assert config == Config() and methods[method] == options
    assert all(own == METHODS[other].config() for other, own in methods.items() if other != method)


def test_what_is_given_wins_over_the_preset_even_if_it_repeats_the_default() -> None:
    given = {"alpha": Config().alpha, "cache_duration": 7}
    config, (ours, theirs) = apply("cifar10-a0.05", given, [entry("scarlet"), entry("cfd")])
    assert (config.alpha, config.rounds) == (Config().alpha, 3000)
    assert ours == ScarletConfig(beta=1.5, cache_duration=7, on_expiry="delete")
    assert theirs.cache_duration == 7


def test_without_a_preset_only_what_is_given_counts() -> None:
    assert apply(None, {"beta": 2.0, "seed": 3, "out": "run"}, [entry("scarlet")]) == (
        Config(seed=3),
        [ScarletConfig(beta=2.0)],
    )


def test_an_unknown_preset_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown preset 'cifar10_a0.05': did you mean 'cifar10-a0.05'\?"):
        preset("cifar10_a0.05")
