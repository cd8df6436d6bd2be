"""A federation over a Grid of Flower, with nodes in this process: equal to a local run, and unharmed by faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

import scarlet
from scarlet.errors import ConfigError, ScarletError
from scarlet.experiment.given import Given
from scarlet.flower.site_data import read_site, read_test
from scarlet.transport import flower
from tests.flower.in_process import CLASSES, InProcessGrid, Killed, SiteNode, run_config, three_nodes, write_sites

_NOT_OF_THE_METHOD = ("seconds", "uplink_transport_bytes", "downlink_transport_bytes")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_sites(tmp_path)
    return tmp_path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rounds(path: Path) -> list[dict[str, Any]]:
    found = lines(path / "metrics.jsonl")
    return [{name: value for name, value in each.items() if name not in _NOT_OF_THE_METHOD} for each in found]


def events(folder: Path) -> list[tuple[str, int | None, str]]:
    return [(each["node"], each["client"], each["what"]) for each in lines(folder / "run" / "nodes.jsonl")]


def local_run(folder: Path, method: object) -> Path:
    """The same federation in one process, without Flower."""
    sites = [read_site(f"npz:{folder / f'{number}.npz'}") for number in range(3)]
    public = f"npz:{folder / 'public.npz'}"
    config = scarlet.Config(
        clients=3, rounds=4, public=public, public_per_round=20, model="mlp", batch_size=10, workers=1
    )
    test = read_test(f"npz:{folder / 'test.npz'}")
    scarlet.run(method, config, sites=sites, test=test, classes=CLASSES, out=folder / "local")
    return folder / "local"


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (scarlet.ScarletConfig(cache_duration=2), {}),
        (scarlet.FedavgConfig(), {"method": "fedavg"}),
        (scarlet.CfdConfig(delta=True, cache_duration=2), {"method": "cfd", "delta": True}),
        (scarlet.CometConfig(cache_duration=2), {"method": "comet"}),
    ],
    ids=["scarlet", "fedavg", "cfd with delta coding", "comet"],
)
def test_undisturbed_it_is_the_local_run_bit_for_bit(folder: Path, method: object, options: dict[str, object]) -> None:
    config = run_config(folder, **options)
    if options.get("method") == "fedavg":
        del config["cache-duration"]
    InProcessGrid(config, three_nodes(folder)).run_here()
    local = local_run(folder, method)
    assert rounds(folder / "run") == rounds(local)
    for name in ("ledger.csv", "clients.csv", "server.safetensors"):
        assert (folder / "run" / name).read_bytes() == (local / name).read_bytes(), name


def test_a_killed_server_goes_on_from_its_checkpoint_and_nothing_is_trained_twice(folder: Path) -> None:
    grid = InProcessGrid(run_config(folder), three_nodes(folder))

    def kill(node: SiteNode, number: int) -> None:
        if number == 9:  # the last client of round 3; the two others have trained
            raise Killed

    grid.before = kill
    with pytest.raises(Killed):
        grid.run_here()
    again = InProcessGrid(run_config(folder), three_nodes(folder))
    again.run_here()
    local = local_run(folder, scarlet.ScarletConfig(cache_duration=2))
    assert rounds(folder / "run") == rounds(local)
    assert (folder / "run" / "server.safetensors").read_bytes() == (local / "server.safetensors").read_bytes()
    audit = lines(folder / "state-0" / "audit.jsonl")
    assert [each["round"] for each in audit] == [1, 2, 3, 3, 4]
    assert audit[2]["reply"] == audit[3]["reply"]


def test_the_checkpoint_of_a_round_is_on_disk_before_the_next_round_is_sent(folder: Path) -> None:
    grid, seen = InProcessGrid(run_config(folder), three_nodes(folder)), []

    def look(node: SiteNode, number: int) -> None:
        saved = [int(path.stem) for path in (folder / "run" / "checkpoint").glob("*.json") if path.stem.isdecimal()]
        seen.append(max(saved, default=0))

    grid.before = look
    grid.run_here()
    assert seen == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_a_node_that_is_away_for_a_round_is_caught_up_and_the_record_says_so(folder: Path) -> None:
    nodes = three_nodes(folder)
    grid = InProcessGrid(run_config(folder, deadline=0.5), nodes)

    def leave(node: SiteNode, number: int) -> None:
        if number == 4:
            nodes[2].online = False
        if number == 8:
            nodes[2].online = True

    grid.before = leave
    result = grid.run_here()
    assert result is not None
    assert [record.answers for record in result.records] == [3, 2, 2, 3]
    assert ("site-2", 2, "offline") in events(folder)
    assert result.records[3].catch_up_bytes > 0
    assert result.records[3].resets == 0


def test_a_silent_node_is_late_and_the_round_closes_without_it(folder: Path) -> None:
    nodes = three_nodes(folder)
    nodes[1].node_config["state-dir"] = str(folder / "unused")
    grid = InProcessGrid(run_config(folder, rounds=2, deadline=0.5), nodes)
    grid.before = lambda node, number: setattr(nodes[1], "silent", number >= 4)
    result = grid.run_here()
    assert result is not None
    assert [record.answers for record in result.records] == [3, 2]
    assert result.records[1].failures == {"late": 1}


def test_a_site_that_lost_its_state_abstains_and_is_healed(folder: Path) -> None:
    nodes = three_nodes(folder)
    grid = InProcessGrid(run_config(folder, abstain=1), nodes)

    def wipe(node: SiteNode, number: int) -> None:
        if number == 8:
            nodes[1].node_config["state-dir"] = str(folder / "new disk")

    grid.before = wipe
    result = grid.run_here()
    assert result is not None
    assert [record.abstained for record in result.records] == [0, 0, 1, 0]
    assert [record.resets for record in result.records] == [0, 0, 1, 0]
    assert [record.answers for record in result.records] == [3, 3, 3, 3]


def test_a_node_with_another_public_dataset_is_told_and_never_asked(folder: Path) -> None:
    nodes = three_nodes(folder)
    nodes[2].node_config["public-path"] = str(folder / "other.npz")
    result = InProcessGrid(run_config(folder), nodes).run_here()
    assert result is not None
    assert {record.answers for record in result.records} == {2}
    assert ("site-2", None, "cannot take part: public dataset differs") in events(folder)
    assert "differ in public" in (folder / "state-2" / "site.log").read_text()


def test_a_node_that_claims_anothers_number_is_refused_also_after_the_server_was_restarted(folder: Path) -> None:
    nodes = three_nodes(folder)
    nodes[2].node_config["client"] = 1
    grid = InProcessGrid(run_config(folder), nodes)
    grid.before = lambda node, number: _kill_at(number, 5)
    with pytest.raises(Killed):
        grid.run_here()
    nodes = three_nodes(folder)
    nodes[2].node_config["client"] = 1
    late = {nodes[2].node_id: nodes[2]} | {node.node_id: node for node in nodes[:2]}
    result = InProcessGrid(run_config(folder), late.values()).run_here()  # the impostor is there first
    assert result is not None
    assert {record.answers for record in result.records} == {2}
    refused = [event for event in events(folder) if "refused" in event[2]]
    assert refused == [("site-2", 1, "refused: client 1 belongs to a node with another key")] * 2
    assert "belongs to a node with another key" in (folder / "state-2" / "site.log").read_text()


def _kill_at(number: int, last: int) -> None:
    if number == last:
        raise Killed


def test_without_registered_keys_a_node_that_is_gone_can_be_replaced_but_not_one_that_is_there(folder: Path) -> None:
    nodes = three_nodes(folder)
    for node in nodes:
        node.name = ""
    second = SiteNode(200, dict(nodes[0].node_config), key=b"another")
    grid = InProcessGrid(run_config(folder, deadline=0.5), [*nodes, second])

    def leave(node: SiteNode, number: int) -> None:
        if number == 4:
            nodes[0].online = second.online = False
        if number == 7:
            second.online = True  # as after a restart, with a new key and a new id

    grid.before = leave
    result = grid.run_here()
    assert result is not None
    assert ("200", 0, "refused: client 0 is another node, which is online") in events(folder)
    assert events(folder)[-1] == ("200", 0, "joined")
    assert result.records[-1].answers == 3
    assert sum(record.abstained for record in result.records) == 0  # it has the state directory of the other


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda node, folder: node.node_config.update({"data-path": str(folder / "none.npz")}), "data cannot be read"),
        (lambda node, folder: node.node_config.update({"state-dir": "/proc/none"}), "state directory cannot be used"),
        (lambda node, folder: node.node_config.update({"client": 7}), "options cannot be used"),
        (lambda node, folder: node.node_config.pop("data-path"), "options cannot be used"),
        (lambda node, folder: _more_classes(folder), "classes do not match"),
        (lambda node, folder: _rule(node, folder, "min-samples = 41"), "refused by policy"),
        (lambda node, folder: _rule(node, folder, "max-label-bits = 3"), "refused by policy"),
        (lambda node, folder: _rule(node, folder, 'experiments = ["00"]'), "refused by policy"),
        (lambda node, folder: _rule(node, folder, "min-sample = 4"), "refused by policy"),
    ],
    ids=["no data", "no state", "number", "no path", "classes", "samples", "bits", "experiment", "broken policy"],
)
def test_a_site_that_cannot_take_part_sends_a_code_and_no_word_of_its_own(
    folder: Path, change: Callable[[SiteNode, Path], None], code: str
) -> None:
    nodes = three_nodes(folder)
    change(nodes[2], folder)
    grid = InProcessGrid(run_config(folder, rounds=1), nodes)
    result = grid.run_here()
    assert result is not None
    assert result.records[0].answers == 2
    assert f"cannot take part: {code}" in [event[2] for event in events(folder)]
    assert_nothing_of_the_site_was_sent(grid, folder)


def _more_classes(folder: Path) -> None:
    arrays = dict(np.load(folder / "2.npz"))
    arrays["train_y"][0] = CLASSES
    np.savez(folder / "2.npz", **arrays)


def _rule(node: SiteNode, folder: Path, rule: str) -> None:
    (folder / "policy.toml").write_text(f"{rule}\n")
    node.node_config["policy"] = str(folder / "policy.toml")


def assert_nothing_of_the_site_was_sent(grid: InProcessGrid, folder: Path) -> None:
    sent = b"".join(each.deflate() for reply in grid.received for each in get_all_nested_objects(reply).values())
    assert sent
    for word in (str(folder), "npz", "Traceback", "Error", "policy.toml", "site-packages"):
        assert word.encode() not in sent, word


def test_a_model_that_fails_is_a_code_for_the_server_and_a_trace_for_the_site(folder: Path) -> None:
    nodes = three_nodes(folder)
    grid = InProcessGrid(run_config(folder, rounds=2), nodes)

    def damage(node: SiteNode, number: int) -> None:
        if number == 6:
            (folder / "state-2" / "client").rename(folder / "kept")
            (folder / "state-2" / "client").write_text("not a directory")

    grid.before = damage
    result = grid.run_here()
    assert result is not None
    assert result.records[1].failures == {"failed": 1}
    assert "Traceback" in (folder / "state-2" / "site.log").read_text()
    assert lines(folder / "state-2" / "audit.jsonl")[-1]["code"] == "failed"
    assert_nothing_of_the_site_was_sent(grid, folder)


def test_a_state_directory_of_another_experiment_is_refused(folder: Path) -> None:
    InProcessGrid(run_config(folder, rounds=1), three_nodes(folder)).run_here()
    other = run_config(folder, rounds=1, out=str(folder / "second"))
    nodes = three_nodes(folder)
    for node in nodes[1:]:
        node.node_config["state-dir"] += "-new"
    result = InProcessGrid(other, nodes).run_here()
    assert result is not None
    assert result.records[0].failures == {}
    assert result.records[0].answers == 2
    found = [(each["node"], each["what"]) for each in lines(folder / "second" / "nodes.jsonl")]
    assert ("site-0", "cannot take part: state directory cannot be used") in found


def test_a_site_whose_data_changed_is_refused_until_they_are_restored(folder: Path) -> None:
    """What was held out for tests before would be trained on, and nobody would see it."""
    nodes = three_nodes(folder)
    grid, whole = InProcessGrid(run_config(folder), nodes), (folder / "0.npz").read_bytes()

    def change(node: SiteNode, number: int) -> None:
        if number == 3:  # the last message of round 1
            with np.load(folder / "0.npz") as arrays:
                np.savez(folder / "0.npz", **{name: each[1:] for name, each in arrays.items()})
        if number == 6:  # of round 2
            (folder / "0.npz").write_bytes(whole)

    grid.before = change
    result = grid.run_here()
    assert result is not None
    assert [record.answers for record in result.records] == [3, 2, 3, 3]
    assert [each["code"] for each in lines(folder / "state-0" / "audit.jsonl")] == [
        None,
        "data cannot be read",
        None,
        None,
    ]


def test_a_node_that_was_mended_and_restarted_during_a_round_takes_part_in_the_next(folder: Path) -> None:
    nodes = three_nodes(folder)
    nodes[2].node_config["public-path"] = str(folder / "other.npz")
    grid = InProcessGrid(run_config(folder), nodes)

    def mend(node: SiteNode, number: int) -> None:
        if number == 3:  # in round 2
            del nodes[2].node_config["public-path"]
            nodes[2].starts += 1

    grid.before = mend
    result = grid.run_here()
    assert result is not None
    assert [record.answers for record in result.records] == [2, 2, 3, 3]


def test_a_node_that_was_restarted_with_another_public_dataset_is_asked_no_more(folder: Path) -> None:
    nodes = three_nodes(folder)
    grid = InProcessGrid(run_config(folder), nodes)

    def spoil(node: SiteNode, number: int) -> None:
        if number == 3:  # the last message of round 1
            nodes[0].node_config["public-path"] = str(folder / "other.npz")
            nodes[0].starts += 1

    grid.before = spoil
    result = grid.run_here()
    assert result is not None
    assert [record.answers for record in result.records] == [3, 2, 2, 2]
    assert {reason for record in result.records for reason in record.failures} == set()


@pytest.mark.parametrize("online", [False, True], ids=["who comes later", "who was refused meanwhile"])
def test_a_number_given_by_mistake_is_free_again_for_the_node_that_it_belongs_to(
    online: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flower, "_GREET_AGAIN", 0.0)
    nodes = three_nodes(folder)
    nodes[0].node_config |= {"client": 1}
    nodes[1].online = online
    grid = InProcessGrid(run_config(folder, deadline=0.5), nodes)

    def correct(node: SiteNode, number: int) -> None:
        if number == 1:  # before it has answered as client 1
            nodes[0].silent = True
        if number == 2:
            nodes[0].node_config |= {"client": 0}
            nodes[0].silent, nodes[0].starts, nodes[1].online = False, 2, True

    grid.before = correct
    result = grid.run_here()
    assert result is not None
    assert [record.answers for record in result.records] == [1, 3, 3, 3]


def test_a_run_is_not_continued_with_other_options_even_before_its_first_round(folder: Path) -> None:
    grid = InProcessGrid(run_config(folder), three_nodes(folder))
    grid.before = lambda node, number: _kill_at(number, 2)
    with pytest.raises(Killed):
        grid.run_here()
    again = InProcessGrid(run_config(folder, lr=0.05), three_nodes(folder))
    with pytest.raises(ConfigError, match=r"is of other options \(lr = 0.1\); restore those, or run anew"):
        again.run_here()
    assert again.sent == 0


def test_a_reply_that_is_no_message_of_flower_costs_one_client_one_round(folder: Path) -> None:
    class Broken(InProcessGrid):
        broken = ""

        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            found = super().push_messages(messages)
            if self.sent == 6:
                self.broken = found[-1]
            return found

        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            found = super().pull_messages(message_ids)
            if self.broken in message_ids and found:
                raise ValueError("not valid protobuf")
            return found

    result = Broken(run_config(folder), three_nodes(folder)).run_here()
    assert result is not None
    assert [record.answers for record in result.records] == [3, 2, 3, 3]
    assert result.records[1].failures == {"message cannot be read": 1}


def test_metrics_stay_on_a_site_whose_policy_says_so(folder: Path) -> None:
    nodes = three_nodes(folder)
    _rule(nodes[2], folder, "metrics = false")
    result = InProcessGrid(run_config(folder), nodes).run_here()
    assert result is not None
    assert {record.answers for record in result.records} == {3}
    measured = {row.split(",")[1] for row in (folder / "run" / "clients.csv").read_text().splitlines()[1:]}
    assert measured == {"0", "1"}


def test_the_audit_log_has_the_bytes_of_the_ledger(folder: Path) -> None:
    InProcessGrid(run_config(folder), three_nodes(folder)).run_here()
    for number in range(3):
        audit = lines(folder / f"state-{number}" / "audit.jsonl")
        header, *rows = [row.split(",") for row in (folder / "run" / "ledger.csv").read_text().splitlines()]
        own = [dict(zip(header, map(int, row), strict=True)) for row in rows if row[1] == str(number)]
        down = [sum(row[name] for name in row if name.startswith(("downlink", "catch_up"))) for row in own]
        up = [sum(row[name] for name in row if name.startswith(("uplink", "report"))) for row in own]
        assert [each["bytes_received"] for each in audit] == down
        assert [each["bytes_sent"] for each in audit] == up


def test_a_run_that_is_finished_is_not_run_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    InProcessGrid(run_config(folder, rounds=1), three_nodes(folder)).run_here()
    grid = InProcessGrid(run_config(folder, rounds=1), three_nodes(folder))
    assert grid.run_here() is None
    assert grid.sent == 0
    assert "is finished (1 rounds); choose another out" in capsys.readouterr().out


def test_no_node_at_all_is_one_line(folder: Path) -> None:
    grid = InProcessGrid(run_config(folder), [])
    with pytest.raises(ScarletError, match=r"no node has joined within 0 s|no node has joined"):
        grid.run_here()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ""}, "classes must be given where private = 'sites'"),
        ({"method": "centralized", "cache-duration": ""}, "method centralized pools the data of all clients"),
        ({"round": 3}, "unknown option of scarlet in the app's config 'round': did you mean 'rounds'"),
        ({"workers": 2}, "workers is an option of a local run"),
        ({"rounds": "many"}, "rounds must be a whole number, got 'many'"),
        ({"test": "test.npz"}, "test must be npz:FILE"),
        ({"class-names": "a,b"}, "class_names must name the 3 classes, got 2"),
        ({"min-nodes": 0}, "min_nodes must be 1 or more"),
    ],
)
def test_options_that_cannot_be_used_are_one_line(folder: Path, changes: dict[str, object], message: str) -> None:
    grid = InProcessGrid(run_config(folder) | changes, three_nodes(folder))
    with pytest.raises(ConfigError) as caught:
        grid.run_here()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_of_the_users_own_is_trained_on_both_sides(folder: Path) -> None:
    import torch

    def make() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, CLASSES))

    from scarlet.flower.site import client

    nodes = three_nodes(folder)
    config = run_config(folder, rounds=20, model="")
    grid = InProcessGrid(config, nodes)
    for node in nodes:
        node.app = type(node.app)()
        client(node.app, model=make)
    result = grid.run_here(Given(model=make))
    assert result is not None
    assert result.summary["server_accuracy"] > 0.8
