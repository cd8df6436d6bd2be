from __future__ import annotations

import hashlib
import io
import socket
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scarlet.data.datasets import load_private
from scarlet.data.fetch import ARCHIVES, Archive, get, present
from scarlet.errors import ConfigError, DataError
from tests.data.make_layouts import write_caltech256, write_cifar10, write_cifar100, write_tiny_imagenet


class Shelf(ThreadingHTTPServer):
    """A web server on this machine that serves one file, and may cut it short."""

    content = b""
    sent = -1  # bytes to send before the connection closes; -1: all

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/archive.bin"


class ServeOneFile(BaseHTTPRequestHandler):
    server: Shelf

    def do_GET(self) -> None:
        if not self.server.content:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content[: self.server.sent if self.server.sent >= 0 else None])

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Shelf(("127.0.0.1", 0), ServeOneFile) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The data folder, empty."""
    return tmp_path / "store"


def put(shelf: Shelf, name: str, content: bytes, monkeypatch: pytest.MonkeyPatch, md5: str | None = None) -> None:
    """Serve `content` as the archive of the set `name`."""
    shelf.content = content
    digest = md5 or hashlib.md5(content).hexdigest()
    monkeypatch.setitem(ARCHIVES, name, Archive(shelf.address, digest))


def tar_of(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(folder, folder.name)
    return buffer.getvalue()


def zip_of(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        for path in sorted(folder.rglob("*")):
            bundle.write(path, path.relative_to(folder.parent))
    return buffer.getvalue()


def message_of(name: str, store: Path) -> str:
    """The text of the DataError that get() must raise, checked to be one line and to leave nothing behind."""
    with pytest.raises(DataError) as caught:
        get(name, store)
    assert list(store.glob("*")) == [] and list(store.glob(".*")) == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_tar_is_downloaded_checked_unpacked_and_readable(
    shelf: Shelf, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tar_of(write_cifar10(tmp_path / "made"))
    put(shelf, "cifar10", content, monkeypatch)
    seen: list[tuple[int, int | None]] = []
    assert get("cifar10", store, lambda done, total: seen.append((done, total))) == store / "cifar-10-batches-py"
    assert seen[-1] == (len(content), len(content))
    assert len(load_private("cifar10", store).train.labels) == 40
    assert [path.name for path in store.iterdir()] == ["cifar-10-batches-py"]


def test_a_zip_is_unpacked_too(shelf: Shelf, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(shelf, "tiny-imagenet", zip_of(write_tiny_imagenet(tmp_path / "made")), monkeypatch)
    get("tiny-imagenet", store)
    assert load_private("tiny-imagenet", store).classes == 4


def test_a_wrong_checksum_deletes_the_file_and_says_so(
    shelf: Shelf, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(shelf, "cifar10", tar_of(write_cifar10(tmp_path / "made")), monkeypatch, md5="0" * 32)
    text = message_of("cifar10", store)
    assert "wrong checksum" in text and "was deleted" in text
    assert text.endswith(f"; put cifar-10-batches-py under {store}")


def test_a_download_that_is_cut_short_says_how_far_it_got(
    shelf: Shelf, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tar_of(write_cifar10(tmp_path / "made"))
    put(shelf, "cifar10", content, monkeypatch)
    shelf.sent = 1000
    assert f"after 1000 of {len(content)} bytes" in message_of("cifar10", store)


def test_an_unreachable_server_is_one_line_without_an_address(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # taken, but nobody listens
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/archive.bin"
        monkeypatch.setitem(ARCHIVES, "cifar10", Archive(address, "0" * 32))
        text = message_of("cifar10", store)
    assert text.startswith("cannot download cifar10 (") and "refused" in text and "http" not in text


def test_a_file_that_is_not_there_any_more_is_one_line(
    shelf: Shelf, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(shelf, "cifar100", b"", monkeypatch)
    assert "404" in message_of("cifar100", store)


def test_an_answer_that_is_not_http_is_one_line(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example ready\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/archive.bin"
        monkeypatch.setitem(ARCHIVES, "cifar10", Archive(address, "0" * 32))
        assert "not HTTP" in message_of("cifar10", store)
        thread.join()


def test_an_archive_of_something_else_is_refused(
    shelf: Shelf, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(shelf, "cifar10", tar_of(write_cifar100(tmp_path / "made")), monkeypatch)
    assert "does not hold cifar-10-batches-py" in message_of("cifar10", store)


def test_bytes_that_are_no_archive_are_refused(shelf: Shelf, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(shelf, "cifar10", b"neither tar nor zip", monkeypatch)
    assert message_of("cifar10", store).startswith("cannot download cifar10 (")


@pytest.mark.parametrize("member", ["../escaped", "/tmp/escaped-from-scarlet", "a/../../escaped", "..\\escaped"])
def test_a_zip_member_outside_its_folder_is_refused(
    member: str, shelf: Shelf, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        bundle.writestr(member, "x")
    put(shelf, "tiny-imagenet", buffer.getvalue(), monkeypatch)
    assert "unsafe path" in message_of("tiny-imagenet", store)


def test_a_tar_member_outside_its_folder_is_refused(shelf: Shelf, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../escaped"))
    put(shelf, "cifar10", buffer.getvalue(), monkeypatch)
    assert "escaped" in message_of("cifar10", store)


def test_what_is_there_but_not_whole_is_never_overwritten(store: Path) -> None:
    folder = write_cifar10(store)
    before = (folder / "data_batch_1").read_bytes()
    with pytest.raises(DataError, match=r"not the whole dataset\); move it away"):
        get("cifar10", store)
    assert (folder / "data_batch_1").read_bytes() == before


def test_an_embedded_set_needs_no_download(store: Path) -> None:
    assert get("mnist5k", store).name == "mnist_5k.csv.gz"
    assert not store.exists()


def test_an_unknown_set_cannot_be_fetched(store: Path) -> None:
    with pytest.raises(ConfigError, match="unknown dataset 'mnist'"):
        get("mnist", store)


def test_the_list_counts_what_is_there(store: Path) -> None:
    write_cifar10(store, per_batch=20, batches=(1, 4))
    write_tiny_imagenet(store, classes=4, train=5, test=8)
    write_caltech256(store, classes=3, images=4)
    rows = {row.name: (row.train, row.test, row.classes, row.complete) for row in present(store)}
    assert rows == {
        "mnist5k": (4000, 1000, 10, True),
        "digits": (1797, 0, 10, True),
        "cifar10": (40, 20, 10, False),
        "cifar100": (0, 0, 0, False),
        "tiny-imagenet": (20, 8, 4, False),
        "caltech256": (12, 0, 3, False),
    }
    assert all(row.error is None for row in present(store))


def test_a_damaged_set_shows_its_error_and_does_not_break_the_list(store: Path) -> None:
    (write_cifar10(store) / "data_batch_1").write_bytes(b"junk")
    write_cifar100(store)
    rows = {row.name: row for row in present(store)}
    assert "data_batch_1 is damaged" in (rows["cifar10"].error or "")
    assert rows["cifar100"].train == 200 and rows["cifar100"].error is None
