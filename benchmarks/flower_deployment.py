"""What Flower costs: bytes of a message, and seconds of a round, in a deployment and in simulation beside a local run.

python benchmarks/flower_deployment.py [--rounds 6]    needs the extra `flower`, and nginx
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import scarlet
from scarlet.flower.addresses import free_port
from scarlet.flower.site_data import read_site, read_test

SITES = 3


class Relay:
    """Passes bytes on between nodes and the server, TLS and all, and counts them."""

    def __init__(self, to: int) -> None:
        self.port, self._to = free_port(), to
        self.up = self.down = 0
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
        except ConnectionError:  # the server has ended before the nodes
            writer.close()
            return
        await asyncio.gather(self._pass_on(reader, back, up=True), self._pass_on(there, writer, up=False))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        try:
            while data := await reader.read(65536):
                self.up, self.down = self.up + len(data) * up, self.down + len(data) * (not up)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "scarlet", "flower", *map(str, arguments)]


def run(*arguments: object) -> None:
    subprocess.run(command(*arguments), check=True, stdout=subprocess.DEVNULL)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def seconds(path: Path) -> float:
    """Median seconds of a round, without the first."""
    return float(statistics.median(each["seconds"] for each in records(path)[1:]))


def deployed(folder: Path, rounds: int) -> None:
    run("keys", folder / "keys", "--address", "127.0.0.1")
    (folder / "sites").mkdir()
    for number in range(SITES):
        run("site-key", folder / f"site-{number}")
        (folder / f"site-{number}.pub").rename(folder / "sites" / f"site-{number}.pub")
    port = free_port()
    relay = Relay(port)
    where = ["--address", f"127.0.0.1:{port}", "--keys", folder / "keys", "--sites", folder / "sites"]
    options = ["--home", folder / "home", "--run-config", f"rounds={rounds}"]
    with (folder / "serve.log").open("w") as log:
        server = subprocess.Popen(command("serve", folder / "app", *where, *options), stdout=log, stderr=log)
    nodes = []
    try:
        while "waiting for" not in (folder / "serve.log").read_text():
            time.sleep(0.2)
        for number in range(SITES):
            own = ["--client", number, "--data", folder / "app" / "data" / f"{number}.npz"]
            kept = ["--state", folder / f"state-{number}", "--key", folder / f"site-{number}"]
            join = command(
                "join", "--superlink", f"127.0.0.1:{relay.port}", "--ca", folder / "keys/ca.pem", *own, *kept
            )
            with (folder / f"site-{number}.log").open("w") as log:
                nodes.append(subprocess.Popen(join, stdout=log, stderr=log))
        metrics = folder / "app" / "run" / "metrics.jsonl"
        marks: list[tuple[int, int]] = []  # bytes through the relay when each round was written
        while server.poll() is None:
            done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
            if done > len(marks):
                marks.append((relay.up, relay.down))
            time.sleep(0.05)
        if server.returncode:
            raise SystemExit((folder / "serve.log").read_text())
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait()
        if server.poll() is None:
            server.terminate()
            server.wait()
    found = records(metrics)
    messages = SITES * (len(found) - 1)
    for way, index in (("uplink", 0), ("downlink", 1)):
        wire = (marks[-1][index] - marks[0][index]) / messages
        payload = sum(each[f"{way}_bytes"] for each in found[1:]) / messages
        frame = sum(each[f"{way}_frame_bytes"] for each in found[1:]) / messages
        report = sum(each["report_bytes"] for each in found[1:]) / messages if way == "uplink" else 0
        around = sum(each[f"{way}_transport_bytes"] for each in found[1:]) / messages
        print(
            f"{way}: payload {payload:.0f}, frame {frame:.0f}, report {report:.0f}, Flower's objects {around:.0f}, "
            f"on the wire (HTTP, TLS, polls and heartbeats included) {wire:.0f} B a message"
        )


def local(folder: Path, rounds: int) -> None:
    data = folder / "app" / "data"
    sites = [read_site(f"npz:{data / f'{number}.npz'}") for number in range(SITES)]
    config = scarlet.Config(rounds=rounds, clients=SITES, model="cnn", public=f"npz:{data / 'public.npz'}")
    test = read_test(f"npz:{data / 'test.npz'}")
    scarlet.run(scarlet.ScarletConfig(), config, sites=sites, test=test, classes=10, out=folder / "local")


def simulated(folder: Path, rounds: int) -> None:
    run("new", folder / "simulation")
    options = f"clients={SITES} rounds={rounds} model='cnn' out='{folder / 'simulated'}'"
    run("simulate", folder / "simulation", "--nodes", SITES, "--home", folder / "ray", "--run-config", options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    rounds = parser.parse_args().rounds
    with TemporaryDirectory(prefix="scarlet-benchmark-") as name:
        folder = Path(name)
        run("new", folder / "app", "--trial", SITES)
        local(folder, rounds)
        deployed(folder, rounds)
        simulated(folder, rounds)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import scarlet.flower.site"], check=True)
        loading = time.perf_counter() - began
        audits = [records(folder / f"state-{number}" / "audit.jsonl")[1:] for number in range(SITES)]
        at_site = statistics.median(max(each["seconds"] for each in round) for round in zip(*audits, strict=True))
        alone, there = seconds(folder / "local" / "metrics.jsonl"), seconds(folder / "app" / "run" / "metrics.jsonl")
        print(f"seconds a round: local {alone:.2f}, simulation {seconds(folder / 'simulated' / 'metrics.jsonl'):.2f}")
        print(f"deployment {there:.2f}: the slowest site's own work {at_site:.2f}, the rest is Flower's: a new process")
        print(f"for each message (loading torch, Flower and this package alone takes {loading:.2f}), and polls")


if __name__ == "__main__":
    main()
