"""What a real bash offers after the script was read."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from scarlet.cli.main import COMMANDS
from scarlet.data.datasets import DATASETS
from scarlet.data.fetch import ARCHIVES
from scarlet.methods.registry import METHODS
from scarlet.presets import PRESETS
from tests.cli.saved.files import complaint
from tests.cli.test_commands import LIMIT, call
from tests.cli.test_help import groups

Offered = Callable[..., list[str]]

# Calls the function that bash was told to call, with the words as bash splits them.
ASK = """source "$1"; shift
function=$(complete -p scarlet); function=${function##*-F }; function=${function% *}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
"$function" && printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def offered(tmp_path_factory: pytest.TempPathFactory) -> Offered:
    script = tmp_path_factory.mktemp("completion") / "scarlet.bash"
    called = call("completion", "bash")
    assert called.code == 0
    script.write_text(called.out)

    def ask(*words: str) -> list[str]:
        command = ["bash", "--norc", "-c", ASK, "bash", str(script), "scarlet", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.stderr == ""
        return done.stdout.split()

    return ask


def test_every_command_is_offered(offered: Offered) -> None:
    assert offered("") == [*COMMANDS, "--help", "--version"]
    assert offered("com") == ["compare", "completion"]


def all_options(*command: str) -> list[str]:
    return [option for group in groups(command).values() for option in group]


@pytest.mark.parametrize(
    "command",
    [*([name] for name in COMMANDS if name != "flower"), *(["run", name] for name in METHODS), ["flower", "serve"]],
    ids=" ".join,
)
def test_the_options_of_a_command_are_those_of_its_help(command: Sequence[str], offered: Offered) -> None:
    words = [*command, "-"] if len(command) > 1 else [*command, "anything", "-"]
    assert sorted(offered(*words)) == sorted(all_options(*command))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", ""], [*METHODS]),
        (["run", "s"], ["scarlet", "selective-fd"]),
        (["compare", "scarlet", "ds"], ["dsfl"]),
        (["presets", ""], [*PRESETS]),
        (["data", ""], ["list", "get", "pack"]),
        (["data", "get", ""], [*ARCHIVES]),
        (["data", "pack", ""], [*DATASETS]),
        (["flower", "s"], ["simulate", "site-key", "serve"]),
        (["costs", "--target"], ["--target-mb"]),
        (["doctor", ""], ["--help", "--data-dir", "--json"]),
        (["run", "dsfl", "--temp"], ["--temperature"]),
        (["run", "scarlet", "--temp"], []),
    ],
)
def test_words_are_completed(words: Sequence[str], expected: Sequence[str], offered: Offered) -> None:
    assert offered(*words) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "scarlet", "--preset", ""], [*PRESETS]),
        (["run", "scarlet", "--preset", "=", "cifar100"], ["cifar100-a0.05"]),
        (["run", "scarlet", "--preset", "="], [*PRESETS]),
        (["run", "scarlet", "--rounds", "3", "--private", "c"], ["cifar10", "cifar100"]),
        (["compare", "scarlet", "dsfl", "--public", "d"], ["digits"]),
        (["run", "scarlet", "--on-expiry", ""], ["delete", "refresh"]),
        (["flower", "new", "app", "--method", "fed"], ["fedavg"]),
        (["run", "scarlet", "--out", ""], []),  # bash goes on with the names of files
        (["run", "scarlet", "--private", "npz", ":", "m"], []),
    ],
)
def test_values_are_completed(words: Sequence[str], expected: Sequence[str], offered: Offered) -> None:
    assert offered(*words) == expected


@pytest.mark.parametrize("words", [["--rounds", "3", ""], ["--json", ""]])
def test_after_a_value_or_a_switch_come_options_again(words: Sequence[str], offered: Offered) -> None:
    assert offered("run", "scarlet", *words) == all_options("run", "scarlet")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "scarlet completion takes the name of one shell, got 0: bash"),
        (["csh"], "unknown shell 'csh': did you mean 'bash'? (known: bash)"),
        (["fish"], "unknown shell 'fish': did you mean 'bash'? (known: bash)"),
    ],
)
def test_another_shell_is_refused(
    words: Sequence[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complaint(capsys, "completion", *words) == said
