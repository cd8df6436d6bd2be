from __future__ import annotations

from pathlib import Path

import pytest

from scarlet.errors import DataError
from scarlet.experiment.run_directory import read_run
from scarlet.report.client_figure import client_figure
from scarlet.report.clients import Client, read_clients
from scarlet.report.strokes import strokes
from scarlet.report.variants import group
from tests.report.runs import run, save, save_clients

OLD = Path(__file__).parent / "old_run"


def test_each_client_has_its_last_accuracy_and_its_samples(tmp_path: Path) -> None:
    save_clients(tmp_path, [0.9, 0.3], samples=[10, 20])
    assert read_clients(tmp_path) == [Client(0, "site 0", 0.9, 10), Client(1, "site 1", 0.3, 20)]


def test_samples_that_are_not_known_and_half_a_last_line_are_left_out(tmp_path: Path) -> None:
    save_clients(tmp_path, [0.9, 0.3])
    with (tmp_path / "clients.csv").open("a") as file:
        file.write("2,0,site 0,cn")
    assert [(client.accuracy, client.samples) for client in read_clients(tmp_path)] == [(0.9, None), (0.3, None)]


def test_an_old_run_has_no_clients() -> None:
    assert read_clients(OLD) == []


@pytest.mark.parametrize("content", ["", "round,client\n1,2\n", "round,client,name,accuracy\n1,2,x,high\n"])
def test_a_damaged_table_is_an_error_of_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "clients.csv").write_text(content)
    with pytest.raises(DataError, match=r"clients\.csv is damaged: each line must have the columns round, client, "):
        read_clients(tmp_path)


def test_the_figure_has_the_clients_of_each_run_from_the_least_accurate_on(tmp_path: Path) -> None:
    runs = [read_run(save(run("scarlet", seed, [0.5]), tmp_path / str(seed))) for seed in (0, 1, 2)]
    save_clients(tmp_path / "0", [0.9, 0.3, 0.6], samples=[10, 40, 20])
    save_clients(tmp_path / "1", [0.8, 0.7])
    variants = group(runs)
    drawn = client_figure(variants, strokes(variants))
    assert drawn is not None
    first, second = drawn["data"]
    assert (first["x"], first["y"]) == ([1, 2, 3], [0.3, 0.6, 0.9])
    assert first["text"][0] == "client site 1, 40 training samples" and first["marker"]["size"][0] == 14
    assert second["y"] == [0.7, 0.8] and second["text"][0] == "client site 1" and "marker" not in second
    assert first["legendgroup"] == second["legendgroup"] == "0"


def test_many_clients_are_a_line_without_dots(tmp_path: Path) -> None:
    directory = save(run("scarlet", 0, [0.5]), tmp_path / "run")
    save_clients(directory, [0.5] * 500)
    variants = group([read_run(directory)])
    drawn = client_figure(variants, strokes(variants))
    assert drawn is not None and drawn["data"][0]["mode"] == "lines" and "text" not in drawn["data"][0]


def test_without_several_clients_there_is_no_figure(tmp_path: Path) -> None:
    directory = save(run("centralized", 0, [0.5]), tmp_path / "run")
    save_clients(directory, [0.5])
    variants = group([read_run(directory), run("dsfl", 0, [0.5])])
    assert client_figure(variants, strokes(variants)) is None
