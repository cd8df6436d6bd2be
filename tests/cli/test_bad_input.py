"""A user's mistake is one line on stderr, exit code 2, and nothing written."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from torch import nn

from scarlet import CometConfig, Config, DsflConfig, compare
from scarlet.cli import main
from scarlet.errors import ConfigError
from scarlet.models.registry import MODELS
from tests.data.make_layouts import write_cifar10, write_cifar100

Mistake = Callable[..., str]


def tree(folder: Path) -> dict[str, str]:
    """Everything under a folder, with a digest of each file."""
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Mistake:
    """Call the command line from an empty folder; its one line of complaint, without 'scarlet: '."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCARLET_DATA", str(tmp_path / "no-data"))

    def call(*arguments: str) -> str:
        before = tree(tmp_path)
        code = main(arguments)
        out, err = capsys.readouterr()
        assert code == 2, f"exit code {code}, {err}"
        assert err.startswith("scarlet: ") and err.endswith("\n") and err.count("\n") == 1, err
        assert out.strip() == "", "nothing but the complaint"
        assert tree(tmp_path) == before, "nothing may be written, not even a folder"
        return err.removeprefix("scarlet: ").removesuffix("\n")

    return call


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["rnu"], "unknown command 'rnu': did you mean 'run'?"),
        (["simulate"], "unknown command 'simulate': did you mean 'simulate-cache'?"),
        (["run", "scarlett"], "unknown method 'scarlett': did you mean 'scarlet'?"),
        (["compare", "scarlet", "dslf"], "unknown method 'dslf': did you mean 'dsfl'?"),
        (["run", "scarlet", "--roundz", "3"], "unknown option '--roundz': did you mean '--rounds'?"),
        (
            ["run", "scarlet", "--cache-duratoin=3"],
            "unknown option '--cache-duratoin': did you mean '--cache-duration'?",
        ),
        (["costs", "--client", "3"], "unknown option '--client': did you mean '--clients'?"),
        (["run", "scarlet", "--model", "resnet_20"], "unknown model 'resnet_20': did you mean 'resnet20'?"),
        (["run", "scarlet", "--private", "mnist"], "unknown dataset 'mnist': did you mean 'mnist5k'?"),
        (["run", "scarlet", "--public", "digit"], "unknown dataset 'digit': did you mean 'digits'?"),
        (["run", "scarlet", "--codec", "refrence"], "unknown codec 'refrence': did you mean 'reference'?"),
        (["costs", "--codec", "refrence"], "unknown codec 'refrence': did you mean 'reference'?"),
        (["data", "lsit"], "unknown data command 'lsit': did you mean 'list'?"),
        (["run", "dsfl", "--preset", "cifar-a0.05"], "unknown preset 'cifar-a0.05': did you mean 'cifar10-a0.05'?"),
        (["compare", "dsfl", "--preset=papr"], "unknown preset 'papr': did you mean 'paper'?"),
        (["presets", "cifar100-0.05"], "unknown preset 'cifar100-0.05': did you mean 'cifar100-a0.05'?"),
        (["data", "get", "cifar_10"], "unknown dataset 'cifar_10': did you mean 'cifar10'?"),
    ],
)
def test_an_unknown_name_is_named_and_the_nearest_suggested(
    arguments: list[str], complaint: str, mistake: Mistake
) -> None:
    assert mistake(*arguments).startswith(complaint)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--alpha", "0"], "alpha must be more than 0, got 0"),
        (["--alpha", "-1"], "alpha must be more than 0, got -1"),
        (["--alpha", "-1e-3"], "alpha must be more than 0, got -0.001"),
        (["--alpha", "-inf"], "alpha must be more than 0, got -inf"),
        (["--alpha=nan"], "alpha must be more than 0, got nan"),
        (["--alpha=inf"], "alpha must be more than 0, got inf"),
        (["--cache-duration", "-1"], "cache_duration must be 0 or more, got -1; use 0 to switch caching off"),
        (["--beta", "0"], "beta must be more than 0, got 0"),
        (["--beta", "-2"], "beta must be more than 0, got -2"),
        (["--beta", "Auto"], "--beta must be a number or auto, got 'Auto'"),
        (["--rho", "1.5"], "rho must be from 0 to 1, got 1.5; it is a share of the clients' disagreement"),
        (["--rounds", "0"], "rounds must be 1 or more, got 0"),
        (["--clients", "0"], "clients must be 1 or more, got 0"),
        (["--workers", "0"], "workers must be 1 or more, got 0"),
        (["--batch-size", "0"], "batch_size must be 1 or more, got 0"),
        (["--eval-every", "0"], "eval_every must be 1 or more, got 0"),
        (["--local-epochs", "-1"], "local_epochs must be 0 or more, got -1"),
        (["--lr", "0"], "lr must be more than 0, got 0"),
        (["--seed", "-1"], "seed must be 0 or more, got -1"),
        (["--public-size", "50", "--public-per-round", "51"], "public_per_round must be at most the 50 public samples"),
        (["--public-per-round", "1798"], "public_per_round must be at most the 1797 public samples in use, got 1798"),
        (["--clients", "4001"], "clients must be at most 4000, the number of private images, got 4001"),
        (["--private", "digits"], "digits can serve as the public dataset only"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_rule(arguments: list[str], named: str, mistake: Mistake) -> None:
    assert mistake("run", "scarlet", "--out", "run", *arguments).startswith(named)


@pytest.mark.parametrize("value", ["0", "-0.1", "nan"])
def test_a_temperature_of_0_or_less_is_named_with_its_rule(value: str, mistake: Mistake) -> None:
    assert mistake("run", "dsfl", f"--temperature={value}").startswith("temperature must be more than 0, got ")


@pytest.mark.parametrize(
    ("method", "arguments", "named"),
    [
        ("cfd", ["--uplink-bits", "0"], "uplink_bits must be from 1 to 32, got 0; 32 sends float32 as it is"),
        ("cfd", ["--uplink-bits", "33"], "uplink_bits must be from 1 to 32, got 33; "),
        ("cfd", ["--downlink-bits", "-1"], "downlink_bits must be from 1 to 32, got -1; "),
        ("cfd", ["--downlink-bits", "64"], "downlink_bits must be from 1 to 32, got 64; "),
        ("comet", ["--clusters", "0"], "clusters must be 1 or more, got 0; the paper uses 2 and 3"),
        ("comet", ["--distil-weight", "0"], "distil_weight must be more than 0, got 0.0; the paper uses 1"),
        ("comet", ["--distil-weight", "-1"], "distil_weight must be more than 0, got -1.0; "),
        ("comet", ["--distil-weight=nan"], "distil_weight must be more than 0, got nan; "),
        (
            "comet",
            ["--assign", "server", "--cache-duration", "25"],
            "assign must be client where there is a cache, got server; ",
        ),
        ("selective-fd", ["--tau-client", "-0.1"], "tau_client must be at least 0 and less than 1, got -0.1; "),
        ("selective-fd", ["--tau-client", "1"], "tau_client must be at least 0 and less than 1, got 1.0; "),
        ("selective-fd", ["--tau-client=nan"], "tau_client must be at least 0 and less than 1, got nan; "),
        ("selective-fd", ["--tau-server", "0"], "tau_server must be more than 0 and at most 2, got 0.0; "),
        ("selective-fd", ["--tau-server", "2.1"], "tau_server must be more than 0 and at most 2, got 2.1; "),
        ("centralized", ["--central-lr", "0"], "central_lr must be more than 0, got 0.0; leave it out to use lr"),
    ],
)
@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_value_out_of_range_of_a_methods_own_option_is_named_with_its_rule(
    command: str, method: str, arguments: list[str], named: str, mistake: Mistake
) -> None:
    assert mistake(command, method, "--out", "out", *arguments).startswith(named)


@pytest.mark.parametrize("command", [["run", "comet"], ["compare", "scarlet", "comet"]])
@pytest.mark.parametrize("few", [["--clients", "3"], ["--clients", "30", "--participation", "0.1"]])
def test_more_clusters_than_a_round_has_clients_are_refused_before_data_is_looked_for(
    command: list[str], few: list[str], mistake: Mistake
) -> None:
    complaint = mistake(*command, *few, "--clusters", "5", "--private", "cifar10", "--out", "out")
    assert complaint.startswith("clusters must be at most the 3 clients that a round asks, got 5; use fewer clusters")


def test_a_comparison_in_python_refuses_too_many_clusters_before_it_writes_anything(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="clusters must be at most the 3 clients that a round asks, got 5"):
        compare([DsflConfig(), CometConfig(clusters=5)], Config(clients=3, private="cifar10"), out=tmp_path / "out")
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "dsfl", "--beta", "2"], "--beta is for scarlet, and not for dsfl; leave it out, or choose scarlet"),
        (["run", "scarlet", "--tau_client=0.1"], "--tau-client is for selective-fd, and not for scarlet; "),
        (["compare", "dsfl", "cfd", "--beta", "2"], "--beta is for scarlet, and not for dsfl or cfd; "),
        (
            ["run", "dsfl", "--cache-duration", "2"],
            "--cache-duration is for scarlet, cfd, comet, selective-fd, and not for dsfl; "
            "leave it out, or choose one of those",
        ),
    ],
)
def test_an_option_of_other_methods_is_told_apart_from_one_that_nobody_has(
    arguments: list[str], complaint: str, mistake: Mistake
) -> None:
    assert mistake(*arguments).startswith(complaint)


@pytest.mark.parametrize("method", ["individual", "fedavg", "centralized"])
def test_a_cache_for_a_method_that_sends_no_soft_labels_is_refused_with_the_reason(
    method: str, mistake: Mistake
) -> None:
    assert mistake("run", method, "--cache-duration", "25") == (
        "--cache-duration is for methods that send soft-labels (scarlet, cfd, comet, selective-fd), "
        f"not for {method}, which sends none; leave it out, or choose one of those"
    )
    assert "not for individual or fedavg, which send none" in mistake(
        "compare", "individual", "fedavg", "--on-expiry", "delete"
    )


def test_a_cache_for_a_preset_whose_server_chooses_the_teachers_says_which_option_to_add(mistake: Mistake) -> None:
    complaint = mistake("run", "comet", "--preset", "cifar10-a0.05", "--cache-duration", "25")
    assert complaint.startswith("assign must be client where there is a cache, got server; ")
    assert complaint.endswith("; preset cifar10-a0.05 sets assign to server: add --assign client")


@pytest.mark.parametrize(
    ("arguments", "option", "value"),
    [
        (["run", "comet", "--preset", "tiny-imagenet-a0.05", "--clients", "2"], "clusters", "3"),
        (["compare", "dsfl", "--preset", "cifar10-a0.3", "--public-size", "500"], "public_per_round", "1000"),
        (["run", "dsfl", "--preset", "cifar10-a0.3", "--private", "mnist5k"], "public_size", "10000"),
    ],
)
def test_a_value_that_only_the_preset_chose_is_said_to_be_its(
    arguments: list[str], option: str, value: str, mistake: Mistake
) -> None:
    complaint = mistake(*arguments, "--out", "out")
    preset, flag = arguments[3], f"--{option.replace('_', '-')}"
    assert complaint.startswith(f"{option} must be ")
    assert complaint.endswith(f"; preset {preset} sets {option} to {value}: add {flag} with another value")


def test_a_value_that_was_typed_is_not_said_to_be_the_presets(mistake: Mistake) -> None:
    complaint = mistake("run", "scarlet", "--preset", "cifar10-a0.05", "--beta", "0")
    assert complaint.startswith("beta must be more than 0, got 0") and "preset" not in complaint


def test_a_preset_whose_data_is_missing_says_where_to_put_the_files(mistake: Mistake, tmp_path: Path) -> None:
    complaint = mistake("run", "scarlet", "--preset", "cifar10-a0.05", "--out", "out")
    assert complaint.startswith(f"cifar10 is not under {tmp_path / 'no-data'};")


@pytest.mark.parametrize(
    ("option", "value", "most"), [("--public-size", "1798", "1797"), ("--samples-per-client", "401", "400")]
)
def test_more_images_than_there_are_names_the_option_the_value_and_the_most(
    option: str, value: str, most: str, mistake: Mistake
) -> None:
    complaint = mistake("run", "scarlet", option, value)
    assert complaint.startswith(option.removeprefix("--").replace("-", "_"))
    assert most in complaint and f"got {value}" in complaint


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "scarlet", "--rounds", "three"], ["--rounds must be a whole number, got 'three'"]),
        (["run", "scarlet", "--seed=1.5"], ["--seed must be a whole number, got '1.5'"]),
        (["run", "scarlet", "--alpha", "small"], ["--alpha must be a number, got 'small'"]),
        (["run", "scarlet", "--on-expiry", "keep"], ["--on-expiry must be delete or refresh, got 'keep'"]),
        (["run", "scarlet", "--rounds"], ["--rounds takes a value, got none; see scarlet run --help"]),
        (["run", "scarlet", "--rounds", "--json"], ["--rounds takes a value, got none; see scarlet run --help"]),
        (["run", "scarlet", "--json=yes"], ["--json takes no value, got 'yes'; leave the value out"]),
        (["run", "scarlet", "--rounds", "3", "surplus"], ["unexpected argument 'surplus'", "see scarlet run --help"]),
        (["run", "scarlet", "-x"], ["unexpected argument '-x'", "see scarlet run --help"]),
        (["run", "scarlet", "dsfl"], ["METHOD", "scarlet, dsfl"]),
        (["run"], ["METHOD", "scarlet, dsfl"]),
        (["compare"], ["METHOD", "scarlet, dsfl"]),
        (["compare", "scarlet", "scarlet"], ["scarlet scarlet"]),
        (["costs", "surplus"], ["surplus"]),
        (["simulate-cache", "surplus"], ["surplus"]),
        (["data"], ["list", "get"]),
        (["data", "get"], ["get", "NAME"]),
        (["presets", "paper", "cfd-original"], ["NAME", "paper cfd-original"]),
        (["report"], ["directories"]),
        (["report", "nowhere"], ["nowhere"]),
        (["sweep", "nowhere.toml", "--out", "new"], ["FILE cannot be read: nowhere.toml", "check the path"]),
    ],
)
def test_a_command_that_cannot_be_understood_is_told_in_one_line(
    arguments: list[str], named: list[str], mistake: Mistake
) -> None:
    complaint = mistake(*arguments)
    assert all(word in complaint for word in named), complaint


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rounds", "0"], "rounds must be 2 or more, got 0"),
        (["--classes", "1"], "classes must be 2 or more, got 1"),
        (["--cache-duration", "-1"], "cache_duration must be 0 or more, got -1"),
        (["--public-size", "10", "--public-per-round", "11"], "public_per_round must be at most the 10 public samples"),
        (["--kept-share", "1.5"], "kept_share must be from 0 to 1, got 1.5; "),
        (["--kept-share=nan"], "kept_share must be from 0 to 1, got nan; "),
        (["--others-duration", "-1"], "others_duration must be 0 or more, got -1; 0 is no cache"),
        (["--uplink-bits", "0"], "uplink_bits must be from 1 to 32, got 0; 32 sends float32 as it is"),
        (["--downlink-bits", "33"], "downlink_bits must be from 1 to 32, got 33; 32 sends float32 as it is"),
        (["--clusters", "0"], "clusters must be 1 or more, got 0; "),
    ],
)
def test_costs_refuses_what_a_run_would_refuse(arguments: list[str], named: str, mistake: Mistake) -> None:
    assert mistake("costs", *arguments).startswith(named)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--durations", "5,x"], "--durations must be whole numbers with commas between, such as 0,1,2, got '5,x'"),
        (["--durations=-1"], "cache_duration must be 0 or more, got -1"),
        (["--public-size", "10", "--public-per-round", "11"], "public_per_round must be at most the 10 public samples"),
        (["--rounds", "4", "--out", "no-folder/cache.html"], "out cannot be written: no-folder/cache.html"),
    ],
)
def test_simulate_cache_refuses_what_makes_no_sense(arguments: list[str], named: str, mistake: Mistake) -> None:
    assert mistake("simulate-cache", *arguments).startswith(named)


@pytest.mark.parametrize(
    ("seeds", "complaint"),
    [
        ("0,x", "--seeds must be whole numbers with commas between, such as 0,1,2, got '0,x'"),
        ("0.5", "--seeds must be whole numbers"),
        ("", "--seeds must be whole numbers"),
        ("1,2,1", "seeds must differ, got 1,2,1"),
        ("-1", "seeds? must be 0 or more, got -1"),
        ("0,-1", "seeds? must be 0 or more, got .*-1"),
    ],
)
def test_bad_seeds_are_refused_before_the_first_run(seeds: str, complaint: str, mistake: Mistake) -> None:
    tiny = ["--rounds", "1", "--clients", "2", "--samples-per-client", "10", "--public-size", "20", "--workers", "1"]
    assert re.match(complaint, mistake("compare", "dsfl", *tiny, f"--seeds={seeds}", "--out", "out"))


@pytest.mark.parametrize("command", [["run", "scarlet"], ["compare", "scarlet", "dsfl"]])
def test_missing_data_says_where_to_put_the_files(command: list[str], mistake: Mistake, tmp_path: Path) -> None:
    complaint = mistake(*command, "--private", "cifar10", "--out", "deep/out")
    assert complaint.startswith(f"cifar10 is not under {tmp_path / 'no-data'};")
    assert "put cifar-10-batches-py there" in complaint and "scarlet data get cifar10" in complaint


def test_a_missing_public_set_says_where_to_put_the_files(mistake: Mistake, tmp_path: Path) -> None:
    write_cifar10(tmp_path / "data")
    complaint = mistake("run", "scarlet", "--private", "cifar10", "--data-dir", "data")
    assert f"cifar100 is not under {tmp_path / 'data'};" in complaint and "put cifar-100-python there" in complaint


@pytest.mark.parametrize("damage", ["truncated", "corrupted", "empty"])
@pytest.mark.parametrize("file", ["cifar-10-batches-py/data_batch_2", "cifar-100-python/train"])
def test_a_damaged_file_is_named(file: str, damage: str, mistake: Mistake, tmp_path: Path) -> None:
    write_cifar10(tmp_path / "data")
    write_cifar100(tmp_path / "data")
    path = tmp_path / "data" / file
    content = path.read_bytes()
    path.write_bytes(
        {
            "truncated": content[: len(content) // 2],
            "corrupted": content[:2] + b"\x00garbage\xff" + content[11:],
            "empty": b"",
        }[damage]
    )
    options = ["--private", "cifar10", "--data-dir", "data", "--model", "cnn32", "--clients", "2", "--workers", "1"]
    assert f"{Path('data') / file} is damaged" in mistake("run", "scarlet", *options, "--rounds", "1")


@pytest.mark.parametrize("command", [["run", "scarlet"], ["compare", "scarlet", "dsfl"]])
def test_an_output_directory_that_holds_a_run_is_refused(command: list[str], mistake: Mistake, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    (earlier / "config.json").write_text("{}")
    (earlier / "metrics.jsonl").write_text('{"round": 1}\n')
    assert mistake(*command, "--out", "earlier").startswith("out must be new or empty, and earlier holds files already")


def test_an_output_directory_that_is_a_file_is_refused(mistake: Mistake, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    assert mistake("run", "scarlet", "--out", "notes").startswith("out must be a directory, and notes is a file")
    assert mistake("run", "scarlet", "--out", "notes/run").startswith("out cannot be made: notes/run")


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("bad.toml", "rounds = ", "config bad.toml is not well formed"),
        ("bad.json", "{", "config bad.json is not well formed"),
        ("list.json", "[1]", "config list.json must be a table of options, got list"),
        ("typo.toml", "roundz = 3", "unknown option in typo.toml 'roundz': did you mean 'rounds'?"),
        ("table.toml", "[options]\nrounds = 3", "unknown option in table.toml 'options'"),
        ("type.toml", 'rounds = "three"', "rounds in type.toml must be a whole number, got 'three'"),
        ("half.toml", "rounds = 1.5", "rounds in half.toml must be a whole number, got 1.5"),
        ("bool.toml", "alpha = true", "alpha in bool.toml must be a number, got True"),
        ("choice.toml", 'on-expiry = "keep"', "on_expiry in choice.toml must be delete or refresh, got 'keep'"),
        ("range.toml", "rounds = 0", "rounds must be 1 or more, got 0"),
        ("twice.toml", "local-epochs = 1\nlocal_epochs = 2", "local_epochs in twice.toml is there twice, with - and"),
        ("method.toml", "temperature = 0.1", "temperature in method.toml is for dsfl, and not for scarlet"),
    ],
)
def test_a_bad_config_file_is_named(name: str, content: str, complaint: str, mistake: Mistake, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert mistake("run", "scarlet", "--config", name, "--out", "run").startswith(complaint)


@pytest.mark.parametrize("command", [["run", "scarlet"], ["run"], ["compare", "scarlet"]])
def test_a_config_file_that_is_missing_is_named(command: list[str], mistake: Mistake) -> None:
    assert mistake(*command, "--config", "nowhere.toml").startswith("config cannot be read: nowhere.toml: ")


def test_a_config_file_that_is_not_text_is_named(mistake: Mistake, tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert mistake("run", "scarlet", "--config", "bytes.toml").startswith("config cannot be read: bytes.toml: ")


def test_an_unknown_method_in_a_config_file_is_named(mistake: Mistake, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('method = "scarlett"')
    assert mistake("run", "--config", "run.toml").startswith("unknown method 'scarlett': did you mean 'scarlet'?")


@pytest.mark.parametrize("command", [["run", "scarlet"], ["compare", "scarlet", "dsfl"]])
def test_a_gpu_that_is_not_there_is_refused(
    command: list[str], mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_gpu(*_: object, **__: object) -> None:
        raise RuntimeError("no NVIDIA driver\non this machine")

    if torch.cuda.is_available():
        monkeypatch.setattr(torch, "empty", no_gpu)
    assert mistake(*command, "--device", "cuda", "--out", "out").startswith("device 'cuda' cannot be used (")


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "meta"])
def test_a_device_that_cannot_train_is_refused(device: str, mistake: Mistake) -> None:
    complaint = mistake("run", "scarlet", "--device", device, "--out", "out")
    assert complaint.startswith(f"device '{device}' cannot be used (")


@pytest.mark.parametrize("command", [["run", "scarlet"], ["compare", "scarlet", "dsfl"]])
def test_more_workers_than_the_machine_can_run_are_refused_before_data_is_looked_for(
    command: list[str], mistake: Mistake
) -> None:
    complaint = mistake(*command, "--workers", "999", "--private", "cifar10", "--out", "out")
    assert re.fullmatch(r"workers must be at most \d+ on this machine, .*, got 999; use fewer", complaint)


def test_more_workers_than_the_machine_can_run_are_refused_by_resume(mistake: Mistake, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text('{"method": "dsfl", "private": "cifar10"}')
    assert "got 999; use fewer" in mistake("resume", "run", "--workers", "999")


def test_a_tracker_for_a_sweep_that_is_resumed_is_refused(mistake: Mistake, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text('{"runs": [{"directory": "a", "method": "dsfl"}]}')
    complaint = mistake("resume", ".", "--track", "tensorboard")
    assert complaint == "track is for runs and comparisons, and . is a sweep; leave --track out"


def test_the_engine_that_was_removed_is_refused_with_the_remedy(mistake: Mistake) -> None:
    assert mistake("run", "scarlet", "--engine", "native", "--out", "out") == (
        "--engine must be auto, contiguous, channels-last, compiled or batched, got 'native'; "
        "native was removed, use auto"
    )
    with pytest.raises(ConfigError, match=r"engine must be auto, .*, got 'native'; native was removed, use auto"):
        Config(engine="native")  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["bench", "chaos"])
def test_a_command_that_was_removed_is_not_known(command: str, mistake: Mistake) -> None:
    assert mistake(command).startswith(f"unknown command '{command}': ")


def test_batched_is_refused_for_a_model_that_draws_by_itself(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "forgetful", lambda *_: nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(784, 10)))
    complaint = mistake("run", "scarlet", "--model", "forgetful", "--engine", "batched", "--out", "out")
    assert complaint.startswith("engine must not be batched for a model that cannot be stacked (")
    assert complaint.endswith("; use auto")


def test_what_may_not_be_read_is_named_with_the_remedy(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(argv: object) -> int:
        raise PermissionError(13, "Permission denied", "locked/sweep.json")

    monkeypatch.setattr("scarlet.cli.report.main", refuse)
    assert mistake("report", "locked") == (
        "cannot use locked/sweep.json (Permission denied); check its permissions and the room on the disk"
    )
