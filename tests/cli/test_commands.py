from __future__ import annotations

import io
import json
import re
import socket
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest

from scarlet.cli import main, run_options
from scarlet.cli.main import COMMANDS
from scarlet.data.datasets import DATASETS
from scarlet.data.fetch import ARCHIVES, Archive
from tests.data.make_layouts import write_cifar10
from tests.report.runs import run, save

LIMIT = 120  # seconds until a test gives up on a process that should have finished long ago
TINY = [
    *("--rounds", "2", "--clients", "3", "--samples-per-client", "20", "--test-per-client", "10"),
    *("--public-size", "40", "--public-per-round", "20", "--workers", "1"),
]


@dataclass(frozen=True, slots=True)
class Called:
    """What a call of the command line came to."""

    code: int
    out: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def call(*arguments: str) -> Called:
    """Call the command line in this process."""
    out = io.StringIO()
    with redirect_stdout(out):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Called(code, out.getvalue())


def lines(directory: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without its seconds."""
    rounds = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    for each in rounds:
        del each["seconds"]
    return rounds


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test in a folder of its own, on a machine without data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCARLET_DATA", str(tmp_path / "data"))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed goes to a terminal of the usual width."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")


def plain(called: Called) -> str:
    """What a terminal shows, without its control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", called.out)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A run that was made by `scarlet run scarlet --json`."""

    directory: Path
    said: Called


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    directory = tmp_path_factory.mktemp("earlier") / "run"
    return Earlier(directory, call("run", "scarlet", *TINY, "--seed", "7", "--json", "--out", str(directory)))


# help


def test_help_lists_every_command() -> None:
    assert all(f"  {command} " in call("--help").out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_of_its_own(command: str) -> None:
    called = call(command, "--help")
    assert called.code == 0 and f"usage: scarlet {command}" in called.out and "--help" in called.out


def test_the_help_of_run_shows_every_option_that_the_paper_varies() -> None:
    shown = call("run", "scarlet", "--help").out + call("run", "dsfl", "--help").out
    named = (
        *("--rounds", "--clients", "--alpha", "--seed", "--private", "--public", "--public-size", "--public-per-round"),
        *("--model", "--local-epochs", "--distil-epochs", "--lr", "--distil-lr", "--batch-size", "--beta"),
        *("--temperature", "--cache-duration", "--on-expiry", "--workers", "--device", "--data-dir", "--eval-every"),
        *("--config", "--out", "--json"),
    )
    assert [option for option in named if f"{option} " not in shown] == []


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_is_also_what_no_command_gives(arguments: Sequence[str]) -> None:
    called = call(*arguments)
    assert called.code == 0 and called.out.startswith("usage: scarlet COMMAND")


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert call("--version").out == f"scarlet {version('scarlet-fl')}\n"


# run


def test_json_is_all_that_run_prints(earlier: Earlier) -> None:
    assert earlier.said.code == 0
    said = earlier.said.json
    assert said["directory"] == str(earlier.directory) and said["rounds"] == 2
    assert said["config"] == json.loads((earlier.directory / "config.json").read_text())
    summary = json.loads((earlier.directory / "summary.json").read_text())
    assert summary.pop("title") == "SCARLET"
    assert {key: said[key] for key in summary} == summary


def test_the_config_of_an_earlier_run_reproduces_it_bit_for_bit(earlier: Earlier) -> None:
    called = call("run", "--config", str(earlier.directory / "config.json"), "--json", "--out", "again")
    assert called.json["config"] == earlier.said.json["config"]
    assert called.json["weights_digest"] == earlier.said.json["weights_digest"]
    assert lines(Path("again")) == lines(earlier.directory)


def test_an_option_on_the_command_line_wins_over_the_file(earlier: Earlier) -> None:
    config = str(earlier.directory / "config.json")
    called = call("run", "scarlet", "--config", config, "--seed=8", "--rounds", "1", "--json", "--out", "other")
    expected = earlier.said.json["config"] | {"seed": 8, "rounds": 1}
    assert called.json["config"] == expected
    assert lines(Path("other")) != lines(earlier.directory)[:1]


def test_an_option_on_the_command_line_wins_even_if_it_repeats_the_default(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("alpha = 3.5\nbeta = 2\n")
    called = call("run", "scarlet", "--config", "run.toml", *TINY, "--alpha", "0.05", "--rounds", "1", "--json")
    assert (called.json["config"]["alpha"], called.json["config"]["beta"]) == (0.05, 2.0)


def test_a_toml_file_may_name_the_method_and_spell_options_with_hyphens(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'method = "dsfl"\nrounds = 1\nclients = 2\nsamples-per-client = 10\ntest_per_client = 5\npublic-size = 20\n'
        "workers = 1\nalpha = 1\ntemperature = 0.5\n"
    )
    config = call("run", "--config", "run.toml", "--json", "--out", "run").json["config"]
    assert (config["method"], config["samples_per_client"], config["alpha"], config["temperature"]) == (
        "dsfl",
        10,
        1.0,
        0.5,
    )


def test_run_says_before_the_first_round_what_it_will_take_and_in_the_end_what_came_of_it() -> None:
    called = call("run", "dsfl", *TINY, "--out", "run")
    said = called.out.splitlines()
    assert called.code == 0
    assert said[0] == "directory: run (if it is interrupted: scarlet resume run)"
    assert said[1].startswith("DS-FL, seed 0, 2 rounds: about ")
    assert "GB of memory" in said[1] and "MB up and" in said[1] and said[1].endswith("MB down")
    assert said[2].startswith("engine: contiguous (")
    assert "round 1/2" in said[3] and "round 2/2" in said[4]
    assert said[-1] == f"report: {Path('run') / 'report.html'}"


def test_a_run_without_out_goes_to_a_new_directory_under_runs() -> None:
    called = call("run", "dsfl", *TINY, "--rounds", "1", "--json")
    (made,) = Path("runs").iterdir()
    assert Path(called.json["directory"]) == made and made.name.startswith("dsfl-")
    assert (made / "summary.json").exists()


def test_two_runs_that_begin_within_a_second_go_to_different_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Stopped:
            return cls(2026, 1, 2, 3, 4, 5)

    monkeypatch.setattr(run_options, "datetime", Stopped)
    for _ in range(3):
        assert call("run", "individual", *TINY, "--rounds", "1").code == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "individual-20260102-030405",
        "individual-20260102-030405-2",
        "individual-20260102-030405-3",
    ]


def test_none_gives_an_option_back_its_default_which_follows_from_the_data() -> None:
    options = [*TINY, "--rounds", "1", "--samples-per-client", "None", "--out", "run", "--json"]
    assert call("run", "dsfl", *options).json["config"]["samples_per_client"] == 4000 // 3


def test_an_option_may_be_typed_with_underscores() -> None:
    called = call("run", "dsfl", *TINY, "--rounds", "1", "--batch_size=20", "--out", "run", "--json")
    assert called.json["config"]["batch_size"] == 20


# compare


def test_compare_makes_a_directory_for_each_method_and_seed_and_one_page() -> None:
    called = call("compare", "scarlet", "dsfl", *TINY, "--seeds", "0,1", "--json", "--out", "out")
    assert called.code == 0
    names = {"scarlet-seed0", "dsfl-seed0", "scarlet-seed1", "dsfl-seed1"}
    assert {path.name for path in Path("out").iterdir()} == {*names, "comparison.json", "report.html", "summary.json"}
    assert all((Path("out") / name / "report.html").exists() for name in names)
    runs = called.json["runs"]
    assert {f"{run['method']}-seed{run['config']['seed']}" for run in runs} == names
    page = (Path("out") / "report.html").read_text()
    assert "SCARLET" in page and "DS-FL" in page


def test_compare_gives_an_option_to_each_method_that_has_it() -> None:
    options = ["--rounds", "1", "--seed", "4", "--temperature", "0.5", "--beta", "3"]
    assert call("compare", "scarlet", "dsfl", *TINY, *options, "--out", "out").code == 0
    configs = [json.loads((Path("out") / f"{name}-seed4" / "config.json").read_text()) for name in ("scarlet", "dsfl")]
    assert configs[0]["beta"] == 3 and "temperature" not in configs[0]
    assert configs[1]["temperature"] == 0.5 and "beta" not in configs[1]


@pytest.mark.usefixtures("terminal")
def test_live_and_final_table_are_whole_on_a_terminal_of_80_columns() -> None:
    shown = plain(call("compare", "scarlet", "dsfl", *TINY, "--rounds", "1", "--seeds", "0,1", "--out", "out"))
    final = shown[shown.index("means of the last 10 evaluated rounds") :]
    assert "SCARLET" in final and "DS-FL" in final and "report.html" in final
    assert "…" not in shown
    assert all(line.rstrip().endswith("│") for line in shown.splitlines() if line.startswith("│")), (
        "a column is cut off"
    )


# report


def test_report_makes_a_page_of_runs_that_are_there(earlier: Earlier) -> None:
    called = call("report", str(earlier.directory), "--out", "page.html")
    assert called.code == 0 and called.out == "report: page.html\n"
    assert "SCARLET" in Path("page.html").read_text()


def test_report_refuses_runs_of_different_private_datasets_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [save(run("scarlet", 0, [0.5], private=name), tmp_path / name) for name in ("cifar10", "mnist5k")]
    called = call("report", *map(str, folders), "--out", "page.html")
    assert called.code == 2 and not Path("page.html").exists()
    assert capsys.readouterr().err == (
        f"scarlet: the runs have different private datasets, cifar10 in {folders[0]} and mnist5k in {folders[1]}; "
        "make a report of each by itself\n"
    )


# costs and simulate-cache


COSTS = ["costs", "--rounds", "5", "--clients", "4", "--public-size", "50", "--public-per-round", "10"]


def test_costs_json_is_a_list_of_objects_with_the_documented_keys() -> None:
    rows = call(*COSTS, "--json").json
    keys = {"method", "codec", "on_expiry", "participation", "uplink_mb", "downlink_mb", "catch_up_mb", "total_gb"}
    assert all(set(row) == keys for row in rows)
    assert all(
        set(row[way]) == {"mean", "std", "max"} for row in rows for way in ("uplink_mb", "downlink_mb", "catch_up_mb")
    )
    ours, theirs, *_ = rows
    assert (ours["method"], ours["codec"], ours["on_expiry"], ours["participation"]) == (
        "scarlet",
        "reference",
        "delete",
        1.0,
    )
    assert (theirs["method"], theirs["on_expiry"]) == ("dsfl", None)
    assert theirs["uplink_mb"] == {"mean": pytest.approx(4 * 10 * 48 / 1e6), "std": 0.0, "max": pytest.approx(1.92e-3)}


def test_costs_prints_a_row_for_each_method() -> None:
    called = call(*COSTS)
    assert called.code == 0 and "SCARL" in called.out and "DS-FL" in called.out


@pytest.mark.usefixtures("terminal")
def test_the_cost_table_is_whole_on_a_terminal_of_80_columns() -> None:
    shown = plain(call("costs", "--rounds", "3"))  # the paper's setting: 4.80 MB up and 5.60 MB down for DS-FL
    assert "SCARLET" in shown and "…" not in shown
    assert shown.count("4.80") == 4 and shown.count("5.60") == 8, "mean and maximum, of those that cost as much"


SIMULATE = ["simulate-cache", "--public-size", "20", "--public-per-round", "10", "--rounds", "200"]


def test_simulate_cache_names_idle_rounds_and_the_largest_duration_with_few_of_them() -> None:
    called = call(*SIMULATE, "--durations", "1,3,150")
    assert called.code == 0
    assert "recommended: D = 3, the largest with fewer than 3% such rounds" in called.out
    (idle,) = [line for line in called.out.splitlines() if line.startswith("D   150: no label is requested in ")]
    assert int(idle.split(" in ")[1].split(" rounds ")[0]) > 100


def test_simulate_cache_says_so_when_no_duration_will_do() -> None:
    assert "no D of these has fewer than 3% such rounds" in call(*SIMULATE, "--durations", "150").out


def test_simulate_cache_json_has_the_ratios_and_the_recommendation() -> None:
    rows = call(*SIMULATE, "--durations", "1,3,150", "--json").json
    assert [(row["cache_duration"], row["recommended"]) for row in rows] == [(1, False), (3, True), (150, False)]
    for row in rows:
        assert len(row["hit_ratio"]) == 200 and row["hit_ratio"][0] == 0
        assert row["idle_rounds"] == [at for at, ratio in enumerate(row["hit_ratio"], start=1) if ratio == 1]


def test_simulate_cache_draws_a_page() -> None:
    assert call(*SIMULATE, "--durations", "3,5", "--out", "cache.html").code == 0
    page = Path("cache.html").read_text()
    assert "<html" in page and "D = 3" in page and "D = 5" in page


# data


def states(called: Called) -> dict[str, str]:
    """The last column of the table, by name of the set."""
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in called.out.splitlines() if "│" in line]
    return {row[0]: row[-1] for row in cells if row[0]}


def test_data_list_of_an_empty_folder_shows_only_what_ships_inside_wheels() -> None:
    absent = dict.fromkeys(("cifar10", "cifar100", "tiny-imagenet", "caltech256"), "absent")
    assert states(call("data", "list")) == {"mnist5k": "whole", "digits": "whole", **absent}


def test_data_list_shows_how_much_of_a_partial_set_is_there(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "mine", per_batch=20, batches=(1, 4))
    rows = {row["name"]: row for row in call("data", "list", "--json", "--data-dir", "mine").json}
    found = rows["cifar10"]
    assert (found["train"], found["test"], found["classes"], found["complete"]) == (40, 20, 10, False)
    assert rows["cifar100"]["train"] == 0 and rows["mnist5k"]["complete"]


def test_data_list_names_the_damage_of_a_set_and_still_shows_every_other(tmp_path: Path) -> None:
    (write_cifar10(tmp_path / "data") / "test_batch").write_bytes(b"")
    called = call("data", "list")
    assert called.code == 0 and "damaged" in called.out
    shown = states(called)
    assert shown.keys() >= DATASETS.keys() and shown["mnist5k"] == "whole" and shown["cifar100"] == "absent"


def test_data_get_without_a_network_says_in_one_line_where_to_put_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but never listening: a connection is refused at once
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/archive"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setitem(ARCHIVES, "cifar10", Archive(address, "0" * 32))
        assert call("data", "get", "cifar10").code == 2
    err = capsys.readouterr().err
    assert err.startswith("scarlet: cannot download cifar10 (") and err.count("\n") == 1
    assert err.endswith(f"; put cifar-10-batches-py under {tmp_path / 'data'}\n")
    assert list((tmp_path / "data").glob("*")) == []


def test_data_get_of_what_ships_inside_a_wheel_has_nothing_to_do() -> None:
    assert call("data", "get", "mnist5k").code == 0


def test_costs_proposes_settings_for_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    setting = ["--clients", "10", "--public-size", "1797", "--public-per-round", "180", "--rounds", "60"]
    assert main(["costs", "--target-mb", "3", *setting]) == 0
    shown = capsys.readouterr().out
    assert "SCARLET within 3 MB: 10 clients, 60 rounds, reference codec" in shown and "recommended" in shown
    assert main(["costs", "--target-mb", "3", *setting, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(each["recommended"] for each in found) == 1 and all(each["total_mb"] <= 3 for each in found)
