"""The help says what each option does, in groups, in the words of the field."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields

import pytest

from scarlet.cli.compare import Seeds
from scarlet.cli.main import COMMANDS
from scarlet.cli.options import AsJson, Option, flag, options_of
from scarlet.cli.resume import ResumeOptions
from scarlet.cli.run_options import GROUPS, CommandOptions, run_options
from scarlet.config import Config
from scarlet.experiment.cache_simulation import SimulateConfig
from scarlet.experiment.costs import CostsConfig
from scarlet.methods.registry import METHODS, entry
from tests.cli.test_commands import LIMIT, call

ALL = [
    *run_options(list(METHODS.values()), Seeds).values(),
    *options_of(CostsConfig).values(),
    *options_of(SimulateConfig).values(),
    *options_of(ResumeOptions).values(),
    *(option for method in METHODS.values() for option in options_of(method.config).values()),
]


def groups(arguments: Sequence[str]) -> dict[str, list[str]]:
    """The options under each heading of a help."""
    found: dict[str, list[str]] = {}
    for line in call(*arguments, "--help").out.splitlines():
        if heading := re.fullmatch(r"(\w+):", line):
            found[heading[1]] = []
        elif option := re.match(r"  (?:-h, )?(--[\w-]+)", line):
            found[list(found)[-1]].append(option[1])
    return found


def test_the_options_of_a_run_come_in_groups() -> None:
    shown = groups(["run", "scarlet"])
    assert list(shown) == [
        *("options", "data", "federation", "training", "stopping", "method", "faults", "performance", "output"),
    ]
    assert shown["options"] == ["--help", "--preset", "--config"]
    assert shown["method"] == ["--beta", "--rho", "--cache-duration", "--average", "--trim", "--on-expiry"]
    assert shown["faults"] == ["--dropout", "--wipe", "--abstain", "--hostile", "--attack"]
    assert shown["output"] == ["--out", "--track", "--json", "--checkpoint-every", "--save-clients"]


@pytest.mark.parametrize("command", [["run", "dsfl"], ["compare", "scarlet", "cfd"], ["run"]])
def test_every_option_is_in_one_group(command: list[str]) -> None:
    methods = [entry(name) for name in command[1:]] or METHODS.values()
    types = [Config, CommandOptions, AsJson, *(method.config for method in methods)]
    expected = {"--help", *map(flag, options_of(*types)), *(["--seeds"] if command[0] == "compare" else [])}
    shown = [option for group in groups(command).values() for option in group]
    assert sorted(shown) == sorted(expected)


def test_the_fields_of_a_config_stand_in_the_order_of_the_groups() -> None:
    names = {field.name for field in fields(Config)}
    assert [name for group in GROUPS.values() for name in group if name in names] == [
        field.name for field in fields(Config)
    ]


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("workers", "--workers INT"),
        ("deadline", "--deadline FLOAT"),
        ("public", "--public NAME"),
        ("out", "--out PATH"),
        ("on_expiry", "--on-expiry {delete,refresh}"),
        ("share_images", "--share-images "),
        ("seeds", "--seeds INT,INT,..."),
    ],
)
def test_an_option_is_shown_with_the_kind_of_its_value(option: str, shown: str) -> None:
    assert shown in call("compare", "scarlet", "--help").out, option


@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_speaks_of_none(command: str) -> None:
    assert "None" not in call(command, "--help").out


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.name)
def test_every_option_has_its_default_described_once(option: Option) -> None:
    expected = 0 if option.is_switch else 1
    assert option.help.count("default:") == expected, option.help


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.name)
def test_an_option_is_described_in_the_words_of_the_field(option: Option) -> None:
    assert not re.search(r"data sets?\b|\bNone\b|laid out|everybody|turn(ed)? down|anew", option.help), option.help


def test_where_there_are_several_methods_the_help_says_which_have_an_option_and_their_defaults() -> None:
    said = " ".join(call("run", "--help").out.split())
    assert "--cache-duration INT [scarlet, cfd, comet, selective-fd] D, rounds for which " in said
    assert "(default: 30 for scarlet, 0 for cfd, comet, selective-fd)" in said
    assert "--temperature FLOAT [dsfl] " in said
    assert "[" not in call("run", "scarlet", "--help").out.partition("method:")[2]


def test_options_of_a_registered_method_need_no_documentation() -> None:
    @dataclass(frozen=True)
    class Plain:
        steps: int = 3
        name: str | None = None

    steps, name = options_of(Plain).values()
    assert (steps.metavar, steps.help) == ("INT", "(default: 3)")
    assert (name.metavar, name.help) == ("NAME", "")


def test_a_methods_own_default_of_a_shared_option_is_shown() -> None:
    assert "--uplink-bits INT b_up, " in (said := " ".join(call("run", "cfd", "--help").out.split()))
    assert "1: only the largest class; 32: float32 (default: 1)" in said
    assert "(default: the method's, or else the codec's)" in " ".join(
        call("compare", "cfd", "dsfl", "--help").out.split()
    )


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_fits_the_terminal(command: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, call(command, "--help").out.splitlines())) <= columns


@pytest.mark.parametrize(
    "arguments", [["--help"], *([command, "--help"] for command in COMMANDS), ["run", "scarlet", "--help"]]
)
def test_a_help_loads_neither_torch_nor_a_tracker(arguments: list[str]) -> None:
    program = (
        "import sys; from scarlet.cli import main\n"
        f"try: main({arguments})\n"
        "except SystemExit: pass\n"
        "sys.exit(', '.join({'torch', 'tensorboard', 'mlflow', 'wandb'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.startswith("usage: scarlet ")


def test_the_list_of_commands_fits_a_terminal_of_100_columns() -> None:
    assert max(map(len, call("--help").out.splitlines())) <= 100
