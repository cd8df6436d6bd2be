"""A flat table of options becomes a list of runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import scarlet
from scarlet import Config, ScarletConfig
from scarlet.errors import ConfigError, WrongTypeError
from scarlet.experiment.config_json import flatten
from scarlet.experiment.grid import grid
from scarlet.experiment.locked import locked
from scarlet.experiment.planned import Planned
from scarlet.experiment.run_directory import forget
from scarlet.experiment.sweep import check_same


def names(**table: object) -> list[str]:
    return [each.directory for each in grid(table, "grid.toml")]


def test_a_list_is_an_axis_and_anything_else_is_the_same_for_all_runs() -> None:
    found = grid({"method": "scarlet", "alpha": [0.1, 1], "beta": [1, "auto"], "rounds": 7, "seed": 3}, "grid.toml")
    assert [(each.config.alpha, getattr(each.method, "beta", None)) for each in found] == [
        (0.1, 1.0),
        (0.1, "auto"),
        (1.0, 1.0),
        (1.0, "auto"),
    ]
    assert {(each.config.rounds, each.config.seed) for each in found} == {(7, 3)}


def test_all_of_one_seed_comes_before_the_next_seed() -> None:
    assert names(alpha=[1, 2], method=["scarlet", "dsfl"], seed=[0, 1]) == [
        *("scarlet-alpha1-seed0", "scarlet-alpha2-seed0", "dsfl-alpha1-seed0", "dsfl-alpha2-seed0"),
        *("scarlet-alpha1-seed1", "scarlet-alpha2-seed1", "dsfl-alpha1-seed1", "dsfl-alpha2-seed1"),
    ]


def test_a_method_without_an_option_has_one_run_whatever_the_values_of_that_axis() -> None:
    table = {"method": ["scarlet", "dsfl", "cfd"], "beta": [1, 2], "cache-duration": [0, 25]}
    assert names(**table) == [
        *(f"scarlet-beta{beta}-cache-duration{d}-seed0" for beta in (1, 2) for d in (0, 25)),
        *("dsfl-seed0", "cfd-cache-duration0-seed0", "cfd-cache-duration25-seed0"),
    ]


def test_a_run_has_one_worker_unless_the_grid_says_otherwise() -> None:
    assert grid({"method": "dsfl"}, "grid.toml")[0].config.workers == 1
    assert grid({"method": "dsfl", "workers": 2}, "grid.toml")[0].config.workers == 2


def test_a_preset_is_a_base_and_options_win_over_it() -> None:
    both = grid({"method": "scarlet", "preset": ["cifar10-a0.05", "cifar10-a0.3"], "rounds": 9}, "grid.toml")
    assert [each.directory for each in both] == [
        "scarlet-presetcifar10-a0.05-seed0",
        "scarlet-presetcifar10-a0.3-seed0",
    ]
    assert [each.config.alpha for each in both] == [0.05, 0.3]
    assert all(each.config.rounds == 9 and isinstance(each.method, scarlet.ScarletConfig) for each in both)


def test_what_would_be_a_list_in_itself_is_written_as_text() -> None:
    (only,) = grid({"method": "dsfl", "model": "cnn,mlp", "model_shares": "0.3,0.7"}, "grid.toml")
    assert only.config.model_shares == (0.3, 0.7)
    assert names(method="dsfl", model=["cnn,mlp", "mlp"]) == ["dsfl-modelcnn_mlp-seed0", "dsfl-modelmlp-seed0"]


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({}, r"^grid.toml names no method; add a line such as"),
        ({"method": "scarlt"}, r"^unknown method 'scarlt': did you mean 'scarlet'\?"),
        ({"method": 3}, r"^method in grid.toml must be a name or a list of names, got 3"),
        ({"method": []}, r"^method in grid.toml is a list without a value; name one"),
        (
            {"method": "dsfl", "alpha": []},
            r"^alpha in grid.toml is a list without a value; name one, or leave alpha out",
        ),
        ({"method": "dsfl", "alhpa": [1]}, r"^unknown option in grid.toml 'alhpa': did you mean 'alpha'\?"),
        ({"method": "dsfl", "beta": [1]}, r"^beta in grid.toml is for scarlet, and the grid has none of them"),
        ({"method": "dsfl", "alpha": ["x"]}, r"^alpha in grid.toml must be a number, got 'x'"),
        ({"method": "dsfl", "alpha": [0.1, -1]}, r"^alpha must be more than 0, got -1"),
        ({"method": "dsfl", "model": ["cnn,mlp", "cnn;mlp"]}, r"two runs of the name dsfl-modelcnn_mlp-seed0"),
        ({"method": "dsfl", "workers": [1, 2]}, r"has the same run twice, as dsfl-workers1-seed0 and as dsfl-workers2"),
        ({"method": "dsfl", "alpha": [1, 1.0]}, r"has the same run twice, as dsfl-alpha1-seed0 and as dsfl-alpha1.0"),
        (
            {"method": "dsfl", "preset": ["paper", False]},
            r"^preset in grid.toml must be a name or a list of names, got F",
        ),
        ({"method": "dsfl", "preset": "papr"}, r"^unknown preset 'papr': did you mean 'paper'\?"),
    ],
)
def test_a_mistake_in_a_grid_is_one_line_that_names_it(table: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        grid(table, "grid.toml")


def test_a_mistake_in_the_table_itself_is_named() -> None:
    for table in ([], None, "grid.toml"):
        with pytest.raises(WrongTypeError, match=r"^the grid must be a table such as "):
            grid(table, "the grid")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^alpha in the grid must be "):
        grid({"method": "dsfl", "alpha": np.array([[0.1, 0.3]])}, "the grid")
    with pytest.raises(WrongTypeError, match=r"^the grid must name options, and 1 is no name"):
        grid({"method": "dsfl", 1: 2}, "the grid")  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"^local_epochs in the grid is there twice, with - and with _; leave one"):
        grid({"method": "dsfl", "local-epochs": 1, "local_epochs": 2}, "the grid")
    with pytest.raises(ConfigError, match=r"^the grid has a run whose name, .* has 1\d\d\d letters \(dsfl-modela_a_"):
        grid({"method": "dsfl", "model": [",".join("a" * 600), "cnn"]}, "the grid")


def test_values_from_python_are_those_of_a_file(tmp_path: Path) -> None:
    own = {"alpha": np.array([0.1, 0.3]), "seed": range(2), "rounds": np.int64(5), "data_dir": tmp_path}
    written = {"alpha": [0.1, 0.3], "seed": [0, 1], "rounds": 5, "data_dir": str(tmp_path)}
    assert grid({"method": "dsfl", **own}, "the grid") == grid({"method": "dsfl", **written}, "the grid")


def began(out: Path, run: Planned, **resolved: object) -> Planned:
    """A run whose first round is on disk; what follows from the data is in its config.json."""
    (out / run.directory).mkdir()
    (out / run.directory / "config.json").write_text(json.dumps({**flatten(run.method, run.config), **resolved}))
    (out / run.directory / "metrics.jsonl").write_text('{"round": 1}\n')
    return run


def test_a_run_of_a_known_name_with_other_options_is_refused(tmp_path: Path) -> None:
    first = began(tmp_path, Planned("a", ScarletConfig(beta="auto", rho=0.5), Config(rounds=5)))
    other = Planned("a", ScarletConfig(beta="auto", rho=0.25), Config(rounds=5, workers=2))
    check_same(tmp_path, [Planned("b", ScarletConfig(), Config(rounds=5)), first], [first])
    complaint = r"^out holds other runs: .*{} has a with rho = 0.5, which is now 0.25; choose another directory"
    with pytest.raises(ConfigError, match=complaint.format("sweep.json")):
        check_same(tmp_path, [other], [first])
    with pytest.raises(ConfigError, match=complaint.format("config.json")):  # as where the runs were copied there
        check_same(tmp_path, [other], [])


def test_a_run_whose_open_options_were_settled_is_the_same(tmp_path: Path) -> None:
    settled = {"public_size": 1797, "model": "cnn", "engine": "contiguous", "min_answers": 1, "data_dir": "elsewhere"}
    first = began(tmp_path, Planned("a", ScarletConfig(), Config()), **settled)
    alone = Planned("b", scarlet.IndividualConfig(), Config(private="npz:own.npz", public_size=50))
    split = Planned("c", ScarletConfig(), Config(private="folder:own", clients=5))
    began(tmp_path, alone, public_size=None)  # nothing is exchanged, and nothing was read
    began(tmp_path, split, clients=3, samples_per_client=120)  # as the folder has them
    check_same(tmp_path, [first, alone, split], [])
    assert (tmp_path / "a").exists()


def test_a_run_that_ended_by_another_rule_is_not_the_same(tmp_path: Path) -> None:
    first = began(tmp_path, Planned("a", ScarletConfig(), Config()), stop_at_mb=0.001)
    with pytest.raises(ConfigError, match=r"config.json has a with stop_at_mb = 0.001, which is now None"):
        check_same(tmp_path, [first], [])


def without_a_round(out: Path, name: str) -> tuple[Planned, Planned]:
    """A run that failed in its first round, and what is wanted in its place."""
    failed = began(out, Planned(name, ScarletConfig(), Config(samples_per_client=100_000)))
    (out / name / "metrics.jsonl").write_text("")
    return failed, Planned(name, ScarletConfig(), Config(samples_per_client=100))


def test_a_run_without_a_round_may_be_another_and_foreign_files_stay(tmp_path: Path) -> None:
    failed, wanted = without_a_round(tmp_path, "a")
    check_same(tmp_path, [wanted], [failed])
    assert not (tmp_path / "a").exists()
    failed, wanted = without_a_round(tmp_path, "a")
    (tmp_path / "a" / "notes.txt").write_text("mine")
    check_same(tmp_path, [wanted], [failed])
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["notes.txt"]


def test_nothing_is_removed_of_a_run_with_results_or_in_use_or_where_another_is_refused(tmp_path: Path) -> None:
    failed, wanted = without_a_round(tmp_path, "a")
    other = began(tmp_path, Planned("b", ScarletConfig(), Config(rounds=5)))
    with pytest.raises(ConfigError, match=r"has b with rounds = 5, which is now 6"):
        check_same(tmp_path, [wanted, Planned("b", ScarletConfig(), Config(rounds=6))], [failed, other])
    with locked(tmp_path / "a", "out"), pytest.raises(ConfigError, match=r"a is in use by another command"):
        check_same(tmp_path, [wanted], [failed])
    for name in ("summary.json", "checkpoint/1"):
        (tmp_path / "a" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "a" / name).write_text('{"rounds": 3}')
        with pytest.raises(ConfigError, match=r"has a with samples_per_client = 100000, which is now 100"):
            check_same(tmp_path, [wanted], [failed])
        with pytest.raises(ConfigError, match=r"^out holds .*a, which has results by now; give the same command again"):
            forget(tmp_path / "a")
        (tmp_path / "a" / name).unlink()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    forget(tmp_path / "link")
    assert (tmp_path / "a" / "config.json").exists()


def test_a_run_that_ctrl_c_ended_before_its_first_round_may_be_another(tmp_path: Path) -> None:
    failed, wanted = without_a_round(tmp_path, "a")
    (tmp_path / "a" / "summary.json").write_text('{"rounds": 0, "interrupted": true}')
    for name in ("server.json", "server.safetensors"):
        (tmp_path / "a" / name).write_text("untrained")
    check_same(tmp_path, [wanted], [failed])
    assert not (tmp_path / "a").exists()


def test_a_rule_that_can_end_no_run_of_a_grid_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^stop_at_mb 1 is of traffic, and this method sends nothing; leave it out"):
        grid({"method": ["individual", "centralized"], "stop_at_mb": 1}, "the grid")
    assert len(grid({"method": ["individual", "dsfl"], "stop_at_mb": 1}, "the grid")) == 2
    with pytest.raises(ConfigError, match=r"^stop_at_mb 1 is of traffic"):
        scarlet.compare([scarlet.IndividualConfig()], Config(stop_at_mb=1))
