"""`scarlet flower serve`: a SuperLink on loopback, nginx in front of it, and one run of an app."""

from __future__ import annotations

import re
import ssl
import subprocess
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from flwr.common.config import fuse_dicts, parse_config_args

from scarlet.errors import ConfigError
from scarlet.flower.addresses import Address, ask, free_port, listening
from scarlet.flower.control import COMPLETED, UNREGISTERED, Control, Run
from scarlet.flower.keys import (
    CA,
    SERVER,
    SERVER_KEY,
    check_certificate,
    check_pair,
    make_server_keys,
    read_public_key,
)
from scarlet.flower.processes import (
    FlowerError,
    Processes,
    end_left_over,
    ended_by_signals,
    environment,
    find_nginx,
    private,
    program,
)
from scarlet.flower.proxy import nginx_command, nginx_conf
from scarlet.flower.version import check_flower

_NAME = "scarlet"  # of the connection in Flower's configuration
_START = 90.0  # seconds for a SuperLink to answer
_INNER_DAYS = 3650


@dataclass(frozen=True, slots=True)
class Serving:
    """What `serve` is asked to do."""

    app: Path
    address: Address  # what sites connect to
    keys: Path | None  # None: without TLS and without authentication of nodes
    sites: Path | None
    home: Path
    run_config: str
    proxy: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """What the checks have found."""

    listen: Address
    nginx: str | None
    public_keys: dict[str, tuple[Path, bytes]]  # name of a site -> file, key


def check(serving: Serving) -> Checked:
    """Refuse what cannot be served, and say what is served."""
    check_flower()
    name = _check_app(serving.app, serving.home)
    if not serving.proxy and not serving.address.is_loopback:
        raise ConfigError(
            f"--no-proxy keeps the SuperLink on loopback, and --address is {serving.address}; use 127.0.0.1:PORT"
        )
    nginx = find_nginx() if serving.proxy else None
    if serving.proxy and nginx is None:
        raise ConfigError(
            "nginx is not installed, and without it everybody who reaches the port could start runs on every site "
            "(Flower's Control API); apt install nginx, or use --no-proxy, which serves this machine only"
        )
    listen = listening(serving.address)
    public_keys: dict[str, tuple[Path, bytes]] = {}
    print(f"app: {serving.app} ({name})")
    if serving.keys is None:
        print("keys: none, so nothing is encrypted, and whoever reaches the port can take part (--insecure)")
    else:
        certificate = serving.keys / SERVER
        ends = check_certificate(certificate, serving.address.host)
        check_pair(certificate, serving.keys / SERVER_KEY)
        print(f"certificate: {certificate}, for {serving.address.host}, until {ends:%Y-%m-%d}")
        public_keys = _public_keys(serving.sites)
        print(f"sites: {', '.join(public_keys)}")
    _check_options(serving)
    outside = f"{listen} by nginx, Fleet API only" if nginx else f"{listen}, this machine only"
    print(f"address: {serving.address}, listening on {outside}")
    return Checked(listen, nginx, public_keys)


def serve(serving: Serving) -> int:
    """Start everything, run the app, stop everything; 0 if the run completed."""
    _check_app(serving.app, serving.home)  # before a directory is made
    with private(serving.home, "--home"), ended_by_signals():
        mark = str(serving.home)
        end_left_over(mark)  # of a `serve` that was killed
        checked = check(serving)
        port = serving.address.port if checked.nginx is None else free_port()
        inner = _inner_keys(serving, checked)
        flower_home = _flower_home(serving.home, port, inner)
        processes = Processes(mark, environment(mark, flower_home))
        try:
            link = _start_superlink(processes, serving, port, inner)
            with _control(port, inner) as control:
                _stop_unfinished(processes, control)
                if serving.keys is not None:
                    _register(processes, control, checked)
                # The proxy is started last, when nobody else than the registered sites can be let in.
                if checked.nginx is not None:
                    _start_nginx(processes, serving, checked, port, inner)
                return _run(processes, control, link, serving)
        finally:
            processes.end()


def simulate(app: Path, home: Path, run_config: str, nodes: int | None) -> int:
    """Run an app in Flower's simulation on this machine, with as many nodes as it has clients; 0 if it completed."""
    _check_app(app, home)
    clients = _config(app, run_config).get("clients") if nodes is None else nodes
    if not isinstance(clients, int) or clients < 1:
        raise ConfigError(f"--nodes must be 1 or more, as many as the app has clients, got {clients}")
    with private(home, "--home"), ended_by_signals():
        mark = str(home)
        end_left_over(mark)
        port = free_port()
        # Without this variable Ray listens on all addresses, on Linux as well.
        ray = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        processes = Processes(mark, environment(mark, _flower_home(home, port, None)) | ray)
        serving = Serving(app, Address("127.0.0.1", port), None, None, home, run_config, proxy=False)
        try:
            link = _start_superlink(processes, serving, port, None, "--simulation")
            with _control(port, None) as control:
                _stop_unfinished(processes, control)
                return _run(processes, control, link, serving, "--federation-config", f"num-supernodes={clients}")
        finally:
            processes.end()


def _config(app: Path, run_config: str) -> dict[str, object]:
    """The options in an app, with those that are changed for this run."""
    table = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    try:
        changed = parse_config_args([run_config] if run_config else None)
        found: dict[str, object] = fuse_dicts(table.get("config", {}), changed)
    except (ValueError, KeyError, SystemExit) as error:
        raise ConfigError(f"--run-config must be options of the app, k=v with blanks between: {error}") from None
    return found


def _check_options(serving: Serving) -> None:
    """Refuse options that the server could not use, and read the data that they name."""
    table = _config(serving.app, serving.run_config)
    if "method" not in table:  # not an app of ours
        return
    from scarlet.experiment.given import Given, gather
    from scarlet.flower.options import read_options
    from scarlet.flower.serving import with_sites
    from scarlet.methods.registry import assemble

    options = read_options(table)
    if not options.remote:
        raise ConfigError(
            f"private must be 'sites' where sites have data of their own, got {options.config.private!r}; set it in "
            "pyproject.toml, or run the app with scarlet flower simulate"
        )
    _, make = assemble(options.method, None, None)
    data = gather(options.config, with_sites(Given(), options), needs_public=make().uses_public).data
    test = "nothing to test on" if data.held_out is None else f"{len(data.held_out):,} samples to test on"
    print(f"data: {len(data.public):,} public samples, fingerprint {data.public_fingerprint}; {test}")


def _check_app(app: Path, home: Path) -> str:
    file = app / "pyproject.toml"
    remedy = "make an app with scarlet flower new DIR"
    if not file.is_file():
        raise ConfigError(f"APP must be the directory of a Flower app, and {app} has no pyproject.toml; {remedy}")
    try:
        content = tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not well formed: {error}") from None
    tool = content.get("tool", {})
    if not isinstance(tool, dict) or "app" not in tool.get("flwr", {}):
        raise ConfigError(f"APP must be the directory of a Flower app, and {file} has no [tool.flwr.app]; {remedy}")
    if home.resolve().is_relative_to(app):
        raise ConfigError(f"--home {home} must not be in APP, whose files go to every site; choose another")
    return str(content.get("project", {}).get("name", "no name"))


def _public_keys(sites: Path | None) -> dict[str, tuple[Path, bytes]]:
    files = [] if sites is None else sorted(sites.glob("*.pub"))
    if not files:
        got = "none" if sites is None else f"{sites}, which has no *.pub"
        raise ConfigError(
            f"--sites must be a directory with the public key of each site, NAME.pub, got {got}; a site makes its key "
            "with scarlet flower site-key"
        )
    names: dict[bytes, Path] = {}
    for file in files:
        if (other := names.setdefault(read_public_key(file), file)) != file:
            raise ConfigError(f"--sites has the same key twice, {other.name} and {file.name}; each site needs its own")
    return {file.stem: (file, key) for key, file in names.items()}


def _inner_keys(serving: Serving, checked: Checked) -> Path | None:
    """The keys of the SuperLink itself.

    Flower authenticates nodes only on a SuperLink with TLS, also on loopback. Behind nginx it has a CA of its own that
    no site trusts, so that the outside may have any certificate; without nginx the sites see the given one.
    """
    if serving.keys is None or checked.nginx is None:
        return serving.keys
    inner = serving.home / "loopback"
    if not (inner / SERVER_KEY).exists():
        make_server_keys(inner, ["localhost"], _INNER_DAYS)
    return inner


def _flower_home(home: Path, port: int, inner: Path | None) -> Path:
    folder = home / "flower"
    folder.mkdir(exist_ok=True)
    trust = "insecure = true" if inner is None else f"root-certificates = {_toml(inner / CA)}"
    (folder / "config.toml").write_text(
        f'[superlink]\ndefault = "{_NAME}"\n\n[superlink.{_NAME}]\naddress = "127.0.0.1:{port}"\n{trust}\n'
    )
    return folder


def _toml(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _start_superlink(
    processes: Processes, serving: Serving, port: int, inner: Path | None, *more: str
) -> subprocess.Popen[str]:
    command = [program("flower-superlink"), "--host", "127.0.0.1", "--port", str(port), *more]
    command += ["--database", str(serving.home / "superlink.db"), "--disable-runtime-dependency-installation"]
    if inner is None:
        command += ["--insecure"]
    else:
        command += ["--ssl-ca-certfile", str(inner / CA), "--ssl-certfile", str(inner / SERVER)]
        command += ["--ssl-keyfile", str(inner / SERVER_KEY), "--enable-supernode-auth"]
    log = serving.home / "superlink.log"
    link = processes.start(command, log, slow=True)
    context = None if inner is None else ssl.create_default_context(cafile=inner / CA)
    _wait_for(Address("127.0.0.1", port), context, link, "SuperLink", log)
    return link


def _start_nginx(processes: Processes, serving: Serving, checked: Checked, port: int, inner: Path | None) -> None:
    assert checked.nginx is not None
    folder = serving.home / "nginx"
    folder.mkdir(exist_ok=True)
    outside = None if serving.keys is None else (serving.keys / SERVER, serving.keys / SERVER_KEY)
    conf = nginx_conf(folder, checked.listen, port, outside, None if inner is None else inner / CA)
    (folder / "nginx.conf").write_text(conf)
    context = None
    if outside is not None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is only asked whether it is there
    log = folder / "error.log"
    proxy = processes.start(nginx_command(checked.nginx, folder), log)
    _wait_for(_reachable(checked.listen), context, proxy, "nginx", log)


def _reachable(listen: Address) -> Address:
    return Address("127.0.0.1", listen.port) if listen.host == "0.0.0.0" else listen


def _wait_for(
    address: Address, context: ssl.SSLContext | None, process: subprocess.Popen[str], name: str, log: Path
) -> None:
    until = time.monotonic() + _START
    while time.monotonic() < until:
        if process.poll() is not None:
            raise FlowerError(
                f"{name} ended at once, with exit code {process.returncode}: {_last_line(log)}; see {log}"
            )
        try:
            ask(address, "/health", context)
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise FlowerError(f"{name} does not answer after {_START:.0f} seconds; see {log}")


def _last_line(log: Path) -> str:
    return (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]


def _control(port: int, inner: Path | None) -> Control:
    return Control(f"127.0.0.1:{port}", None if inner is None else inner / CA)


def _stop_unfinished(processes: Processes, control: Control) -> None:
    """Stop the runs of a `serve` that was killed: the SuperLink would start them again, beside the new one."""
    for run in control.runs():
        if not run.finished:
            code, printed = processes.run([program("flwr"), "stop", str(run.number), _NAME])
            # A run whose process is gone may fail by itself in between, and cannot be stopped then.
            if code != 0 and not next(now.finished for now in control.runs() if now.number == run.number):
                raise FlowerError(f"flwr stop {run.number} failed: {' '.join(printed.split()) or 'no output'}")


def _register(processes: Processes, control: Control, checked: Checked) -> None:
    """Let exactly the given sites take part; a restart finds them registered."""
    known = {node.key: node for node in control.nodes()}
    wanted = {key for _, key in checked.public_keys.values()}
    for node in known.values():
        if node.key not in wanted and node.status != UNREGISTERED:
            _flwr(processes, "supernode", "unregister", str(node.number), _NAME)
    for name, (file, key) in checked.public_keys.items():
        if key not in known:
            _flwr(processes, "supernode", "register", str(file), _NAME, "--name", name)
        elif known[key].status == UNREGISTERED:
            raise ConfigError(
                f"--sites: the key {file} was taken out earlier, and Flower does not take a key a second time; "
                "let the site make a new one, or choose another --home"
            )


def _flwr(processes: Processes, *arguments: str) -> None:
    code, printed = processes.run([program("flwr"), *arguments])
    if code != 0:
        last = " ".join(printed.split()) or "no output"
        raise FlowerError(f"flwr {' '.join(map(quote, arguments))} failed: {last}")


def _run(processes: Processes, control: Control, link: subprocess.Popen[str], serving: Serving, *more: str) -> int:
    command = [program("flwr"), "run", str(serving.app), _NAME, "--stream", *more]
    if serving.run_config:
        command += ["--run-config", serving.run_config]
    numbers: list[int] = []
    code = processes.show(
        processes.start(command),
        lambda line: numbers.extend(map(int, re.findall(r"Successfully started run (\d+)", line))),
    )
    if not numbers:
        return code or 1
    run = _finished(control, numbers[0], link)
    print(f"run {run.number}: {run.result}{f' ({run.details})' if run.details else ''}")
    return 0 if run.result == COMPLETED else 1


def _finished(control: Control, number: int, link: subprocess.Popen[str]) -> Run:
    """A run when it is finished: the stream of its output ends earlier, or with a connection that was lost."""
    while True:
        if link.poll() is not None:
            raise FlowerError(f"the SuperLink has ended, with exit code {link.returncode}; see superlink.log in --home")
        run = next(run for run in control.runs() if run.number == number)
        if run.finished:
            return run
        time.sleep(0.5)
