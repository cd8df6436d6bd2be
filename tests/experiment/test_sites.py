"""Federations of the user's own: sites with their data and models."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scarlet
from scarlet.cli import main
from scarlet.data.datasets import PrivateSet, load_private, load_public
from scarlet.records import RunResult
from tests.experiment.tiny import TINY
from tests.experiment.watchers import CtrlC

CLASSES, FEATURES = 3, 5
ROWS = scarlet.Config(
    rounds=4, local_epochs=1, distil_epochs=1, batch_size=8, public_per_round=12, workers=1, codec="reference"
)


def rows(size: int, seed: int) -> tuple[Any, Any]:
    """Rows of a table whose class follows from them."""
    x = np.random.default_rng(seed).normal(size=(size, FEATURES)).astype(np.float32)
    return x, x[:, :CLASSES].argmax(axis=1)


def small() -> nn.Module:
    return nn.Linear(FEATURES, CLASSES)


def large() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES))


PUBLIC = rows(40, 99)[0]
SITES = [
    scarlet.Site(name=name, train=rows(size, size), test=rows(10, 50 + size), model=model)
    for name, size, model in (("north", 20, small), ("east", 31, large), ("south", 9, small), ("west", 24, large))
]


def outcome(result: RunResult) -> tuple[object, ...]:
    """All numbers of a run but those that depend on the machine."""
    left_out = {"seconds", "uplink_transport_bytes", "downlink_transport_bytes"}
    records = [{name: value for name, value in asdict(each).items() if name not in left_out} for each in result.records]
    return result.summary["weights_digest"], records


def run(sites: Any = SITES, method: object | None = None, config: scarlet.Config = ROWS, **given: Any) -> Any:
    options = {"public": PUBLIC} | given
    return scarlet.run(method or scarlet.ScarletConfig(cache_duration=2), config, sites=sites, **options)


@pytest.fixture(scope="module")
def usual() -> Any:
    return run()


class Pairs(torch.utils.data.Dataset[tuple[Tensor, int]]):
    def __init__(self, arrays: tuple[Any, Any]) -> None:
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays[1])

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.from_numpy(self.arrays[0][index]), int(self.arrays[1][index])


class Plain:
    """No torch Dataset, but it has items and a length."""

    def __init__(self, arrays: tuple[Any, Any]) -> None:
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays[1])

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.arrays[0][index], self.arrays[1][index]


FORMS: dict[str, Callable[[tuple[Any, Any]], Any]] = {
    "tensors": lambda arrays: (torch.from_numpy(arrays[0]), torch.from_numpy(arrays[1])),
    "a torch Dataset": Pairs,
    "a plain class": Plain,
    "a TensorDataset": lambda arrays: torch.utils.data.TensorDataset(*map(torch.from_numpy, arrays)),
    "float64 and int32": lambda arrays: (arrays[0].astype(np.float64), arrays[1].astype(np.int32)),
    "uint8 labels in a column": lambda arrays: (arrays[0], arrays[1].astype(np.uint8)[:, None]),
    "lists": lambda arrays: [arrays[0].tolist(), arrays[1].tolist()],
    "read-only arrays": lambda arrays: tuple(np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape) for a in arrays),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_data_in_another_form_gives_identical_numbers(form: str, usual: Any) -> None:
    sites = [replace(site, train=FORMS[form](site.train), test=FORMS[form](site.test)) for site in SITES]
    public: Any = Pairs((PUBLIC, np.zeros(len(PUBLIC)))) if "Dataset" in form else torch.from_numpy(PUBLIC)
    assert outcome(run(sites, public=public)) == outcome(usual)


def test_sites_in_another_order_give_identical_numbers_also_where_only_some_take_part(usual: Any) -> None:
    assert outcome(run(SITES[::-1])) == outcome(usual)
    assert run(SITES[::-1]).names == usual.names == ["east", "north", "south", "west"]
    part = replace(ROWS, participation=0.5, dropout=0.2)
    assert outcome(run(SITES[2:] + SITES[:2], config=part)) == outcome(run(config=part))


def test_random_draws_follow_a_sites_name() -> None:
    alike = [replace(SITES[0], name=name) for name in "ab"]
    others = [replace(SITES[0], name=name) for name in "ac"]
    individual = scarlet.IndividualConfig()
    one, two = run(alike, individual), run(others, individual)

    def weights(result: Any, name: str) -> Tensor:
        return torch.cat([value.flatten() for value in result.client_model(name).state_dict().values()])

    assert torch.equal(weights(one, "a"), weights(two, "a"))
    assert not torch.equal(weights(one, "b"), weights(two, "c")) and not torch.equal(
        weights(one, "a"), weights(one, "b")
    )


def test_worker_processes_change_nothing_and_lambdas_reach_them(usual: Any) -> None:
    width = 16
    wide = lambda: nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, CLASSES))  # noqa: E731
    sites = [replace(site, model=wide if site.model is large else small) for site in SITES]
    assert run(sites, config=replace(ROWS, workers=2)).summary["weights_digest"] == usual.summary["weights_digest"]


def test_what_cannot_reach_a_worker_process_runs_in_one_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    lock = Lock()  # cannot be sent

    def factory() -> nn.Module:
        with lock:
            return small()

    result = run([replace(site, model=factory) for site in SITES], config=replace(ROWS, workers=2, rounds=1))
    assert result.summary["rounds"] == 1
    said = capsys.readouterr().err
    assert said.startswith("scarlet: running in one process, because a function that was given cannot be sent")


@pytest.mark.parametrize(
    "method",
    [
        scarlet.ScarletConfig(cache_duration=3),
        scarlet.SelectiveFdConfig(),
        scarlet.FedavgConfig(),
        scarlet.CentralizedConfig(),
    ],
)
def test_a_federation_that_we_share_out_is_the_one_of_sites_with_the_same_shares(
    method: object, tmp_path: Path
) -> None:
    config = replace(TINY, rounds=3, participation=0.7)
    loaded = load_private("mnist5k", tmp_path)
    assert isinstance(loaded, PrivateSet)
    shares = scarlet.share_out(loaded.train, loaded.test, clients=3, samples_per_client=30, test_per_client=10)
    arrays = [scarlet.Site(train=tuple(site.train.arrays()), test=tuple(site.test.arrays())) for site in shares]
    public = load_public("digits", tmp_path, (1, 28, 28), 60)
    given = {"public": public, "test": tuple(loaded.test), "model": "cnn"}
    ours, theirs = scarlet.run(method, config), scarlet.run(method, config, sites=arrays, **given)
    assert outcome(ours) == outcome(theirs)


def test_a_site_without_a_test_set_takes_part_and_is_not_measured(tmp_path: Path) -> None:
    sites = [replace(SITES[0], test=None), *SITES[1:]]
    result = run(sites, test=rows(20, 7), out=tmp_path)
    assert all(record.answers == 4 for record in result.records)
    lines = (tmp_path / "clients.csv").read_text().splitlines()[1:]
    assert {line.split(",")[2] for line in lines} == {"east", "south", "west"}
    nobody = run([replace(site, test=None) for site in SITES])
    assert nobody.records[-1].client_accuracy is None and nobody.records[-1].server_accuracy is None
    assert nobody.summary["weights_digest"] == run().summary["weights_digest"], "measuring changes nothing"


def test_the_server_is_tested_on_all_that_the_sites_are_tested_on_unless_a_test_set_is_given(usual: Any) -> None:
    both = np.concatenate([site.test[0] for site in SITES]), np.concatenate([site.test[1] for site in SITES])
    accuracy = run(test=both).records[-1].server_accuracy
    assert accuracy == usual.records[-1].server_accuracy is not None
    scores = usual.server_model(torch.from_numpy(both[0])).argmax(dim=1).numpy()
    assert accuracy == pytest.approx((scores == both[1]).mean())


def test_models_come_back_as_torch_modules_by_number_and_by_name(usual: Any, tmp_path: Path) -> None:
    assert isinstance(usual.server_model, nn.Sequential), "the first site by name is east, whose model is large"
    assert isinstance(usual.client_model("south"), nn.Linear) and isinstance(usual.client_model(2), nn.Linear)
    assert not usual.client_model(0).training
    for wrong in ("centre", 4, -1):
        with pytest.raises(ValueError, match="client must be"):
            usual.client_model(wrong)
    with pytest.raises(ValueError, match="Individual has no model on the server"):
        _ = run(method=scarlet.IndividualConfig()).server_model


def test_a_result_has_a_table_of_its_rounds_and_a_page(usual: Any, tmp_path: Path) -> None:
    assert list(usual.rounds.index) == [1, 2, 3, 4]
    assert list(usual.rounds["uplink_bytes"]) == [record.uplink_bytes for record in usual.records]
    page = usual.report()
    assert page.path is None and "Accuracy by model" in page.html and page._repr_html_().startswith("<iframe srcdoc=")
    written = run(out=tmp_path).report()
    assert written.path == tmp_path / "report.html" and written.path.read_text() == written.html


@pytest.mark.parametrize("method", [scarlet.FedavgConfig(), scarlet.IndividualConfig(), scarlet.CentralizedConfig()])
def test_a_method_that_needs_no_public_dataset_runs_without(method: object) -> None:
    sites = [replace(site, model=small) for site in SITES]
    assert run(sites, method, public=None).summary["rounds"] == 4


def test_optimisers_and_schedules_are_continued_after_an_interruption_with_models_of_two_kinds(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "optimizer": torch.optim.AdamW,
        "schedule": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
    }
    whole = run(**given)
    for at in (1, 3):
        assert run(out=tmp_path / str(at), watchers=[CtrlC(at)], **given).interrupted
        assert outcome(run(out=tmp_path / str(at), resume=True, **given)) == outcome(whole)
    momentum = replace(ROWS, momentum=0.9, weight_decay=1e-3)
    assert run(out=tmp_path / "sgd", watchers=[CtrlC(2)], config=momentum).interrupted
    resumed = run(out=tmp_path / "sgd", resume=True, config=momentum)
    assert outcome(resumed) == outcome(run(config=momentum)) != outcome(run())


def test_a_scale_of_a_site_is_its_own(usual: Any) -> None:
    halved = [
        replace(site, train=(site.train[0] / 2, site.train[1]), test=(site.test[0] / 2, site.test[1])) for site in SITES
    ]
    back = run(halved, public=PUBLIC / 2, scale=lambda batch: batch * 2)
    assert outcome(back)[0] == outcome(usual)[0]
    own = [replace(site, scale=lambda batch: batch * 3) if site.name == "west" else site for site in SITES]
    assert outcome(run(own))[0] != outcome(usual)[0]


@pytest.mark.parametrize("name", ["Data", "PrivateSet"])
def test_what_is_gone_says_what_to_use_instead(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"^scarlet.{name} is gone; give .*scarlet.share_out"):
        getattr(scarlet, name)


def test_a_comparison_on_data_of_ones_own_is_not_resumed_on_other_data(tmp_path: Path) -> None:
    methods = [scarlet.ScarletConfig(), scarlet.DsflConfig()]
    done = scarlet.compare(methods, ROWS, sites=SITES, public=PUBLIC, out=tmp_path, seeds=[0, 1])
    assert len(done) == 4 and (tmp_path / "report.html").exists()
    shutil.rmtree(tmp_path / "dsfl-seed1")
    for path in (tmp_path, tmp_path / "scarlet-seed0"):
        (path / "summary.json").unlink()
        assert "was given its sites, public from Python" in refused(main, ["resume", str(path)])


def test_a_comparison_on_data_of_ones_own_goes_on_from_python(tmp_path: Path) -> None:
    def compared(**options: Any) -> list[Any]:
        methods = [scarlet.ScarletConfig(), scarlet.DsflConfig()]
        return scarlet.compare(methods, ROWS, sites=SITES, public=PUBLIC, **options)

    with pytest.raises(ValueError, match=r"^out holds no comparison to resume"):
        compared(out=tmp_path, resume=True)
    whole = compared()
    assert len(compared(out=tmp_path, watchers=[CtrlC(2)])) == 1
    resumed = compared(out=tmp_path, resume=True)
    assert [outcome(each)[0] for each in resumed] == [outcome(each)[0] for each in whole]
    assert (tmp_path / "report.html").exists() and len(compared(out=tmp_path, resume=True)) == 2


def test_methods_without_soft_labels_need_no_public_dataset_and_no_number_of_its_samples() -> None:
    config = replace(ROWS, public_per_round=None, rounds=1)
    sites = [replace(site, model="mlp") for site in SITES]
    for method in (scarlet.FedavgConfig(), scarlet.IndividualConfig()):
        assert len(scarlet.run(method, config, sites=sites).records) == 1


def refused(command: Callable[[list[str]], int], words: list[str]) -> str:
    """What a command says that it cannot do."""
    with redirect_stderr(StringIO()) as said:
        assert command(words) == 2
    return said.getvalue()


@pytest.mark.parametrize(
    "other", [{}, {"optimizer": torch.optim.Adam}, {"optimizer": torch.optim.SGD, "scale": lambda batch: batch * 2}]
)
def test_a_run_is_not_continued_with_other_functions(other: dict[str, Any], tmp_path: Path) -> None:
    assert run(out=tmp_path, watchers=[CtrlC(2)], optimizer=torch.optim.SGD).interrupted
    with pytest.raises(ValueError, match="is of other options"):
        run(out=tmp_path, resume=True, **other)
    assert not run(out=tmp_path, resume=True, optimizer=torch.optim.SGD).interrupted


def test_what_is_read_backwards_comes_as_a_generator_or_with_labels_works_as_well(usual: Any) -> None:
    turned = [replace(site, train=(site.train[0][::-1][::-1], site.train[1])) for site in SITES]
    assert outcome(run(iter(turned), public=(PUBLIC[::-1].copy()[::-1], np.zeros(len(PUBLIC))))) == outcome(usual)
    assert outcome(run(classes=np.int64(3)))[0] == outcome(usual)[0]


def test_a_dataset_is_read_once_also_in_a_comparison() -> None:
    class Counting(Plain):
        reads = 0

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            Counting.reads += 1
            return super().__getitem__(index)

    sites = [replace(site, train=Counting(site.train)) for site in SITES]
    methods = [scarlet.ScarletConfig(), scarlet.DsflConfig()]
    scarlet.compare(methods, replace(ROWS, rounds=1), sites=sites, public=PUBLIC, seeds=[0, 1])
    assert Counting.reads == sum(len(site.train[1]) for site in SITES)


def test_sites_whose_names_are_numbers_are_found_by_their_names() -> None:
    numbered = [replace(SITES[0], name=str(name), model=model) for name, model in ((1, small), (2, large), (3, small))]
    result = run(numbered, config=replace(ROWS, rounds=1))
    assert isinstance(result.client_model(2), nn.Sequential) and isinstance(result.client_model("1"), nn.Linear)


def test_a_site_may_have_a_scale_to_another_shape_and_a_model_for_that() -> None:
    def pairs() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(2 * FEATURES, CLASSES))

    own = replace(SITES[0], model=pairs, scale=lambda batch: torch.stack([batch, batch], dim=1))
    assert run([own, *SITES[1:]]).summary["rounds"] == 4


def test_a_model_that_no_client_has_may_be_named_all_the_same() -> None:
    config = replace(ROWS, model="mlp,cnn", model_shares=(1.0, 0.0))
    sites = [replace(site, model=None) for site in SITES]
    result = run(sites, config=config)
    assert result.config["model"] == "mlp,cnn" and list(result.records[-1].accuracy_by_model) == []


def test_fedavg_is_compared_without_a_public_dataset(tmp_path: Path) -> None:
    sites = [replace(site, model=small) for site in SITES]
    (result,) = scarlet.compare([scarlet.FedavgConfig()], ROWS, sites=sites, out=tmp_path)
    assert result.summary["rounds"] == 4
