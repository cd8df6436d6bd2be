"""Server, client, codec and state know the protocols of a slot and no implementation of one."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import scarlet.protocol

PROTOCOL = Path(scarlet.protocol.__path__[0])
SLOTS = ("scarlet.protocol.downlink", "scarlet.protocol.uplink")
OPTIONAL = ("downlink.personal", "uplink.delta", "uplink.weights", "unchanged_labels")  # each belongs to one method


def imports(path: Path) -> set[str]:
    """The modules that a file imports, whatever it does with them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize(
    "name", ["server", "client", "codec", "codec_registry", "state", "slots", "stamps", "messages", "cache"]
)
def test_no_implementation_of_a_slot_is_imported_by(name: str) -> None:
    assert not [module for module in imports(PROTOCOL / f"{name}.py") if module.startswith(SLOTS)]


def test_a_method_knows_its_two_defaults_alone() -> None:
    known = {module for module in imports(PROTOCOL / "method.py") if module.startswith(SLOTS)}
    assert known == {f"{SLOTS[0]}.shared", f"{SLOTS[0]}.shared.Shared"} | {
        f"{SLOTS[1]}.labels",
        f"{SLOTS[1]}.labels.SoftLabels",
    }


@pytest.mark.parametrize("name", OPTIONAL)
def test_nothing_of_the_protocol_imports_what_belongs_to_one_method(name: str) -> None:
    module = f"scarlet.protocol.{name}"
    for path in PROTOCOL.rglob("*.py"):
        assert module not in imports(path), f"{path} imports {module}"


WITHOUT = """
import sys

class Deleted:
    def find_spec(self, name, path=None, target=None):
        if name in {deleted}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Deleted())
from scarlet.methods.parts.mean import mean
from scarlet.protocol.cache import Duration
from scarlet.protocol.downlink.shared import Shared
from scarlet.protocol.method import Method
from tests.protocol.federation import Federation
from tests.protocol.uplink.top_k import TopK

for coding in ("reference", "compact"):
    for method in (Method(mean(), downlink=Shared(Duration(2))), Method(mean(), uplink=TopK(2))):
        federation = Federation(method, coding=coding)
        for _ in range(4):
            assert federation.play().answers == 4
print("played")
"""


def test_what_belongs_to_one_method_can_be_deleted_and_the_rest_plays_on() -> None:
    deleted = {f"scarlet.protocol.{name}" for name in OPTIONAL}
    script = WITHOUT.replace("{deleted}", repr(deleted))
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("played\n", 0), done.stderr
