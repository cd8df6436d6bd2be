"""`serve` and `join` run Flower to its end, survive a kill, and leave no process behind."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from scarlet.cli.main import main
from scarlet.flower import keys as keys_module
from scarlet.flower import superlink, version
from scarlet.flower.addresses import Address, free_port, listening
from scarlet.flower.keys import make_server_keys, make_site_key
from scarlet.flower.template import new_app, new_trial
from tests.flower.commands import APP, processes_of, run, write_data
from tests.flower.test_keys import at

pytestmark = pytest.mark.xdist_group("deployment")


def serving(folder: Path, port: int, what: str) -> list[object]:
    where = ["--address", f"127.0.0.1:{port}", "--home", folder / "home", "--run-config", f"what='{what}'"]
    return ["serve", APP, *where, "--keys", folder / "keys", "--sites", folder / "sites"]


def make_keys(folder: Path) -> None:
    make_server_keys(folder / "keys", ["127.0.0.1"], days=1)
    (folder / "sites").mkdir()
    make_site_key(folder / "site").rename(folder / "sites" / "site.pub")


def test_a_run_that_fails_gives_exit_code_1_and_leaves_nothing(tmp_path: Path) -> None:
    where = ["--address", f"127.0.0.1:{free_port()}", "--home", tmp_path / "home", "--run-config", "what='fail'"]
    code, output = run(tmp_path / "serve.log", "serve", APP, *where, "--insecure", "--no-proxy")
    assert code == 1, output
    assert "nothing is encrypted" in output
    assert ": failed" in output.splitlines()[-1]
    assert processes_of(tmp_path / "home") == []


class TestMistakes:
    """Each is one line on stderr, with exit code 2."""

    @pytest.fixture(autouse=True)
    def keys(self, tmp_path: Path) -> None:
        make_keys(tmp_path)
        self.folder = tmp_path
        self.data, self.public = write_data(tmp_path)

    def refusal(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
        """The one line of a command that refuses."""
        assert main(["flower", *map(str, arguments)]) == 2
        error = capsys.readouterr().err
        assert error.startswith("scarlet: ")
        assert error.count("\n") == 1
        return error.removeprefix("scarlet: ")

    def serve(self, *changed: object) -> list[object]:
        return [*serving(self.folder, free_port(), "wait"), "--dry-run", *changed]

    def join(self, *changed: object) -> list[object]:
        own = ["--client", 0, "--data", self.data, "--state", self.folder / "state", "--key", self.folder / "site"]
        where = ["--superlink", f"127.0.0.1:{free_port()}", "--ca", self.folder / "keys" / "ca.pem"]
        return ["join", *where, *own, "--dry-run", *changed]

    def test_a_directory_that_is_no_app(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "has no pyproject.toml; make an app" in self.refusal(capsys, "serve", self.folder, *self.serve()[2:])
        (self.folder / "pyproject.toml").write_text("[project]\nname = 'x'\n")
        assert "has no [tool.flwr.app]" in self.refusal(capsys, "serve", self.folder, *self.serve()[2:])

    def test_a_home_in_the_app_which_goes_to_every_site(self, capsys: pytest.CaptureFixture[str]) -> None:
        line = self.refusal(capsys, *self.serve("--home", APP / "server"))
        assert "must not be in APP, whose files go to every site" in line

    def test_options_that_the_server_could_not_use(self, capsys: pytest.CaptureFixture[str]) -> None:
        new_app(self.folder / "app")
        new_trial(self.folder / "trial", "scarlet", 2)
        capsys.readouterr()
        rest = self.serve()[2:]
        line = self.refusal(capsys, "serve", self.folder / "app", *rest, "--run-config", "rounds=3")
        assert line.startswith("private must be 'sites' where sites have data of their own, got 'mnist5k'")
        for options, complaint in (
            ("rounds='many'", "rounds must be a whole number"),
            ("test='npz:none.npz'", "test must be a file"),
            ("public='npz:none.npz'", "npz:none.npz does not exist"),
            ("classes=4", "labels must be from 0 to 3"),
            ("round=3", "--run-config must be options of the app"),
        ):
            line = self.refusal(capsys, "serve", self.folder / "trial", *rest, "--run-config", options)
            assert complaint in line

    def test_a_port_in_use(self, capsys: pytest.CaptureFixture[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            line = self.refusal(capsys, *self.serve("--address", f"127.0.0.1:{port}"))
        assert line == f"--address 127.0.0.1:{port} cannot be used: port {port} is in use; choose another port\n"

    def test_an_expired_certificate(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(keys_module, "datetime", at(keys_module.datetime(2020, 1, 1, tzinfo=keys_module.UTC)))
            make_server_keys(self.folder / "old", ["127.0.0.1"], days=1)
        assert "server.pem expired on 2020-01-02" in self.refusal(capsys, *self.serve("--keys", self.folder / "old"))
        assert "ca.pem expired on 2020-01-02" in self.refusal(capsys, *self.join("--ca", self.folder / "old/ca.pem"))

    def test_a_certificate_for_another_host(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "is not for 127.0.0.2" in self.refusal(capsys, *self.serve("--address", f"127.0.0.2:{free_port()}"))

    def test_no_keys_and_no_sites(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "server.pem is missing" in self.refusal(capsys, *self.serve("--keys", self.folder / "sites"))
        assert "which has no *.pub" in self.refusal(capsys, *self.serve("--sites", self.folder / "keys"))
        bare = ["serve", APP, "--dry-run"]
        assert self.refusal(capsys, *bare).startswith("--keys must be given")
        assert self.refusal(capsys, *bare, "--keys", self.folder / "keys").startswith("--sites must be a directory")

    def test_insecure_for_other_machines(self, capsys: pytest.CaptureFixture[str]) -> None:
        line = self.refusal(capsys, "serve", APP, "--insecure", "--address", "10.0.0.1:9092", "--dry-run")
        assert line.startswith("--insecure is for a trial on one machine")
        assert self.refusal(capsys, *self.serve("--no-proxy", "--address", "10.0.0.1:9092")).startswith("--no-proxy")

    def test_no_nginx(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(superlink, "find_nginx", lambda: None)
        line = self.refusal(capsys, *self.serve())
        assert line.startswith("nginx is not installed")
        assert "use --no-proxy" in line

    def test_flower_missing_or_untested(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(version, "version", lambda name: "1.30.0")
        expected = "flwr must be 1.41.x, which was tested, and 1.30.0 is installed here"
        for command in (self.serve(), self.join(), ["keys", self.folder / "k"], ["site-key", self.folder / "s"]):
            assert self.refusal(capsys, *command).startswith(expected)

        def missing(name: str) -> str:
            raise version.PackageNotFoundError

        monkeypatch.setattr(version, "version", missing)
        assert "no flwr is installed here; install it with pip" in self.refusal(capsys, *self.serve())

    def test_a_superlink_that_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "does not answer: Connection refused" in self.refusal(capsys, *self.join())
        line = self.refusal(capsys, *self.join("--superlink", "fl.invalid:9092"))
        assert line.startswith("--superlink fl.invalid:9092 has no such host")
        assert self.refusal(capsys, *self.join("--superlink", "9092")).startswith("--superlink must be HOST:PORT")

    def test_a_site_without_data_or_with_a_state_that_cannot_be_written(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "nowhere.npz does not exist" in self.refusal(capsys, *self.join("--data", self.folder / "nowhere.npz"))
        line = self.refusal(capsys, *self.join("--state", self.data / "state"))
        assert line.startswith("--state must be a directory that can be written")
        assert "nowhere.npz" in self.refusal(capsys, *self.join("--public", self.folder / "nowhere.npz"))

    def test_a_policy_that_does_not_parse(self, capsys: pytest.CaptureFixture[str]) -> None:
        (self.folder / "policy.toml").write_text("max-label-bits = 'many'\n")
        assert "max-label-bits" in self.refusal(capsys, *self.join("--policy", self.folder / "policy.toml"))

    def test_a_key_that_is_not_there_or_is_there_already(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "is not there; make it" in self.refusal(capsys, *self.join("--key", self.folder / "none"))
        assert "ca.pem is missing" in self.refusal(capsys, *self.join("--ca", self.folder / "none" / "ca.pem"))
        assert "is there already" in self.refusal(capsys, "site-key", self.folder / "site")
        assert "is there already" in self.refusal(capsys, "keys", self.folder / "keys")

    def test_a_command_that_does_not_exist(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.refusal(capsys, "sreve").startswith("unknown flower command 'sreve': did you mean 'serve'?")
        assert "see scarlet flower join --help" in self.refusal(capsys, "join", "--clinet", 0)


def test_a_name_that_means_loopback_on_this_machine_is_served_where_sites_find_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Debian's installer writes 127.0.1.1 beside the machine's name into /etc/hosts."""
    port = free_port()
    own = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: own)
    assert listening(Address("fl.example.org", port)) == Address("0.0.0.0", port)
    assert listening(Address("localhost", port)) == Address("127.0.1.1", port)
