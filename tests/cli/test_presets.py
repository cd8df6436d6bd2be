from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scarlet.presets import PRESETS, Preset
from tests.cli.test_commands import LIMIT, TINY, call, elsewhere, plain, terminal

__all__ = ["elsewhere", "terminal"]  # fixtures

SHARED = {
    "rounds": 1,
    "clients": 3,
    "samples_per_client": 20,
    "test_per_client": 10,
    "public_size": 40,
    "alpha": 0.5,
    "lr": 0.05,
    "distil_lr": 0.06,
}


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preset that runs in a moment."""
    own: dict[str, dict[str, Any]] = {
        "scarlet": {"beta": 1.1, "cache_duration": 4},
        "cfd": {"uplink_bits": 2},
        "dsfl": {"temperature": 0.3},
    }
    monkeypatch.setitem(PRESETS, "mine", Preset("mine", "for tests", SHARED, own))


def written(directory: str) -> Any:
    return json.loads((Path(directory) / "config.json").read_text())


@pytest.mark.usefixtures("mine")
def test_the_command_line_wins_over_the_file_the_file_over_the_preset_and_the_preset_over_the_defaults() -> None:
    Path("run.toml").write_text("lr = 0.07\ndistil-lr = 0.08\nbeta = 1.2\n")
    options = ["--preset", "mine", "--config", "run.toml", "--distil-lr", "0.09", "--workers", "1", "--out", "run"]
    assert call("run", "scarlet", *options, "--json").code == 0
    config = written("run")
    assert (config["batch_size"], config["alpha"], config["lr"], config["distil_lr"]) == (50, 0.5, 0.07, 0.09)
    assert (config["on_expiry"], config["cache_duration"], config["beta"]) == ("refresh", 4, 1.2)


@pytest.mark.usefixtures("mine")
def test_the_config_of_a_run_holds_what_the_preset_gave_and_runs_again_without_it() -> None:
    first = call("run", "scarlet", "--preset", "mine", "--workers", "1", "--out", "first", "--json").json
    assert {name: first["config"][name] for name in SHARED} == SHARED and "preset" not in first["config"]
    again = call("run", "--config", "first/config.json", "--out", "again", "--json").json
    assert again["weights_digest"] == first["weights_digest"] and written("again") == written("first")


@pytest.mark.usefixtures("mine")
def test_compare_gives_each_method_what_the_preset_says_of_it_and_an_option_to_each_that_has_it() -> None:
    options = ["--preset", "mine", "--workers", "1", "--cache-duration", "2", "--out", "out", "--json"]
    assert call("compare", "scarlet", "cfd", *options).code == 0
    ours, theirs = written("out/scarlet-seed0"), written("out/cfd-seed0")
    assert (ours["beta"], ours["cache_duration"]) == (1.1, 2)
    assert (theirs["uplink_bits"], theirs["cache_duration"]) == (2, 2)
    assert ours["alpha"] == theirs["alpha"] == 0.5


@pytest.mark.usefixtures("mine")
def test_a_file_may_name_the_preset() -> None:
    Path("run.toml").write_text('method = "dsfl"\npreset = "mine"\nworkers = 1\n')
    assert call("run", "--config", "run.toml", "--out", "run", "--json").json["config"]["temperature"] == 0.3


def test_the_preset_paper_changes_how_a_run_on_any_data_forgets() -> None:
    assert call("run", "scarlet", *TINY, "--rounds", "1", "--preset", "paper", "--out", "run", "--json").code == 0
    config = written("run")
    assert (config["on_expiry"], config["codec"], config["private"]) == ("delete", "reference", "mnist5k")


# scarlet presets


@pytest.mark.usefixtures("terminal")
def test_the_list_is_whole_on_a_terminal_of_80_columns() -> None:
    shown = plain(call("presets"))
    assert all(name in shown for name in PRESETS)
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    rows = [line for line in shown.splitlines() if line.startswith("│ tiny-imagenet-a0.05")]
    cells = [cell.strip() for row in rows for cell in row.split("│")[2:-1]]
    assert cells == [
        "tiny-imagenet",
        "0.05",
        "1000",
        "100",
        "1000",
        "1.25, 50",
        "0.05",
        "1, 32",
        "3, 1.0",
        "0.03125, 2.0",
    ]


@pytest.mark.parametrize("name", PRESETS)
def test_one_preset_is_shown_with_all_its_values(name: str) -> None:
    chosen = PRESETS[name]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in call("presets", name).out.splitlines()]
    shown = {(row[0], row[2]): row[1] for row in rows if len(row) == 3}
    given = {("all methods", option): value for option, value in chosen.shared.items()}
    given |= {(method, option): value for method, own in chosen.methods.items() for option, value in own.items()}
    assert shown == {
        (f"--{option.replace('_', '-')}", of): "yes" if value is True else str(value)
        for (of, option), value in given.items()
    }


def test_one_experiment_names_the_public_set_and_the_model_that_go_with_it() -> None:
    said = call("presets", "cifar100-a0.05").out.splitlines()
    assert said[-1] == "public dataset and model of the private dataset: tiny-imagenet, resnet32"


def test_json_is_all_that_presets_prints() -> None:
    listed = call("presets", "--json").json
    assert [each["name"] for each in listed] == list(PRESETS)
    one = call("presets", "cifar10-a0.05", "--json").json
    assert one == listed[0] and set(one) == {"name", "about", "shared", "methods"}
    assert one["shared"]["alpha"] == 0.05 and one["methods"]["scarlet"]["cache_duration"] == 50


def test_presets_are_listed_without_waiting_for_torch() -> None:
    program = (
        "import sys; from scarlet.cli import main; code = main(['presets']); sys.exit('torch' in sys.modules or code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr or "torch was loaded"


def test_the_help_of_run_and_compare_says_what_wins_over_a_preset() -> None:
    for command in ("run", "compare"):
        said = " ".join(call(command, "--help").out.split())
        assert "--config overrides it, and the command line overrides both" in said
