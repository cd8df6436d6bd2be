"""A site: what a node of Flower does with each message, in a process that knows nothing of the one before."""

from __future__ import annotations

import fcntl
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from scarlet.data.sites import ELSEWHERE, Augment, Scale, Site
from scarlet.errors import ConfigError, DataError, MessageError, ScarletError
from scarlet.experiment.config_json import described
from scarlet.experiment.federation import Federation, prepare
from scarlet.experiment.given import Given
from scarlet.flower.options import AppOptions, Place, read_options
from scarlet.flower.policy import Policy
from scarlet.flower.site_data import read_site
from scarlet.methods.registry import assemble
from scarlet.models.registry import ModelFactory
from scarlet.node import OtherExperiment
from scarlet.protocol.agreement import Agreement
from scarlet.protocol.codec_registry import codec
from scarlet.protocol.messages import Report
from scarlet.store import Folder, Store
from scarlet.training.optimisers import MakeOptimizer, MakeSchedule
from scarlet.transport.client_runner import ClientRunner
from scarlet.transport.client_setup import ClientSetup
from scarlet.transport.envelope import HELLO, REFUSED, ROUND, Ask, Code, Hello, Reply, Values
from scarlet.transport.flower import RECORD
from scarlet.transport.transport import Failure
from scarlet.whole_file import write_whole
from scarlet.wire import frame

_CLIENT = "client"  # the folder of a state directory that a node keeps its client in
Handler: TypeAlias = Callable[[Message, Context], Message]


class Refusal(Exception):
    """A site does not do what it was asked; the code leaves the site, and the text does not."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


def client(
    app: ClientApp,
    *,
    model: ModelFactory | str | None = None,
    augment: Augment | Scale | None = None,
    scale: Scale | None = None,
    optimizer: MakeOptimizer | None = None,
    schedule: MakeSchedule | None = None,
) -> None:
    """Let a ClientApp of Flower be a client of a federation; the arguments are those of `scarlet.run`."""
    given = Given(model=model, augment=augment, scale=scale, optimizer=optimizer, schedule=schedule)
    app.query(HELLO)(_handler(given, _say_hello))
    app.query(REFUSED)(_handler(given, _hear_refusal))
    app.train(ROUND)(_handler(given, _take_part))


@dataclass(frozen=True, slots=True)
class _Here:
    """A node as it was started, and what its app gave."""

    options: AppOptions
    place: Place
    policy: Policy
    given: Given


def _handler(given: Given, act: Callable[[_Here, Values], Reply]) -> Handler:
    """What Flower calls. Whatever goes wrong is logged on the site, and only its code leaves."""

    def handle(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        place: Place | None = None
        try:
            options = read_options(dict(context.run_config))
            place = Place.read(dict(context.node_config), options)
            record = dict(message.content.config_records[RECORD])
            reply = act(_Here(options, place, _policy(place), given), record)
        except Exception as error:  # its text may tell of the site's files, so it must not reach Flower
            reply = Reply(code=error.code if isinstance(error, Refusal) else _code_of(error))
            _log(place, "".join(traceback.format_exception(error)))
        return Message(RecordDict({RECORD: ConfigRecord(dict(reply.values()))}), reply_to=message)

    return handle


def _policy(place: Place) -> Policy:
    try:
        return Policy.read(place.policy)
    except ConfigError as error:  # a site whose rules cannot be read does nothing
        raise Refusal("refused by policy", str(error)) from error


def _code_of(error: Exception) -> Code:
    if isinstance(error, MessageError):
        return "message cannot be read"
    if isinstance(error, DataError):
        return "data cannot be read"
    return "options cannot be used" if isinstance(error, ConfigError) else "failed"


def _say_hello(here: _Here, values: Values) -> Reply:
    """Compare everything that must be the same on both sides, and say which client this is."""
    hello = Hello.read(values)
    if hello.version != version("scarlet-fl"):
        text = f"the server has scarlet {hello.version}, and this site {version('scarlet-fl')}; install the same"
        raise Refusal("versions differ", text)
    _client_setup(here, hello.agreement)
    kept = here.place.state / _CLIENT
    with _locked(here.place):
        saved = Store(Folder(kept)).load() if kept.is_dir() else None
    if saved is not None and saved.meta.get("agreement") != hello.agreement.digest.hex():
        text = "the state directory is of another experiment; use another one, or an empty one"
        raise Refusal("state directory cannot be used", text)
    return Reply(here.place.client)


def _hear_refusal(here: _Here, values: Values) -> Reply:
    """The server says why it does not ask this site; whoever runs the site finds that in its log."""
    _log(here.place, f"the server does not ask this site: {values.get('reason', '')}\n")
    return Reply(here.place.client)


def _take_part(here: _Here, values: Values) -> Reply:
    """One client's part of a round; its state and a line in the audit log are on disk before the reply leaves."""
    ask = Ask.read(values)
    place, audit = here.place, _Audit(here.place, ask)
    try:
        if ask.client != place.client:
            text = f"this is client {place.client}, and the message is for {ask.client}"
            raise Refusal("message cannot be read", text)
        federation, setup = _client_setup(here, ask.agreement)
        abstain = federation.config.abstain if ask.known else 0
        with _locked(place):
            _check_unchanged(place, federation)
            disk = Folder(place.state / _CLIENT)
            runner = ClientRunner(setup, federation.data, {}, disk=disk, abstain=abstain)
            try:
                ((_, answer),) = runner.exchange({place.client: ask.downlink})
            finally:
                runner.close()
    except Exception as error:
        audit.write((), error.code if isinstance(error, Refusal) else _code_of(error))
        raise
    if isinstance(answer, Failure):
        other = answer.reason.startswith(OtherExperiment.__name__)
        code: Code = "state directory cannot be used" if other else "failed"
        audit.write((), code)
        raise Refusal(code, f"{answer.reason}\n{answer.trace}")
    messages = tuple(answer) if here.policy.metrics else _without_metrics(setup, answer)
    audit.write(messages)
    return Reply(place.client, messages)


def _client_setup(here: _Here, agreement: Agreement) -> tuple[Federation, ClientSetup]:
    """The federation as this site sees it, if that is what the server sees; Refusal if it is not."""
    federation, setup = _federation(here.options, here.place, here.given, agreement)
    ours = federation.agreement
    if differences := ours.differences(agreement):
        text = f"this site and the server differ in {', '.join(differences)}"
        raise Refusal("public dataset differs" if "public" in differences else "agreement differs", text)
    method = setup.method()
    why = here.policy.objection(
        experiment=agreement.digest.hex(),
        samples=len(federation.data.train[here.place.client]),
        label_bits=codec(agreement.codec, method, agreement).uplink_bits if method.uses_public else 0,
    )
    if why is not None:
        raise Refusal("refused by policy", why)
    return federation, setup


# The processes of a simulation serve many clients, one after another: the federation of the last agreement is kept.
_kept: dict[bytes, tuple[Federation, ClientSetup]] = {}


def _federation(
    options: AppOptions, place: Place, given: Given, agreement: Agreement
) -> tuple[Federation, ClientSetup]:
    if not 0 <= place.client < agreement.clients:
        raise Refusal("options cannot be used", f"client must be below {agreement.clients}, got {place.client}")
    if not options.remote:
        if place.data is not None:
            raise Refusal("options cannot be used", "this site has data, and the app says private = a dataset's name")
        if agreement.digest not in _kept:
            _kept.clear()
            _kept[agreement.digest] = _prepared(options, given, agreement)
        return _kept[agreement.digest]
    if place.data is None:
        raise Refusal("options cannot be used", "private = 'sites' needs nodes with a data-path; simulate a dataset")
    try:
        own = read_site(place.data, options.flower.names, options.config.image_size)
    except ScarletError as error:
        raise Refusal("data cannot be read", str(error)) from error
    largest = int(own.train.labels.max(initial=0))
    if largest >= agreement.classes:
        text = f"labels must be from 0 to {agreement.classes - 1}, got {largest}; number the classes as the others do"
        raise Refusal("classes do not match", text)
    sites = [Site(ELSEWHERE) for _ in range(agreement.clients)]
    sites[place.client] = own
    known = options.config
    config = replace(known, public=place.public or known.public, device=place.device or known.device)
    with_data = replace(given, sites=sites, classes=agreement.classes)
    return _prepared(replace(options, config=config), with_data, agreement)


def _prepared(options: AppOptions, given: Given, agreement: Agreement) -> tuple[Federation, ClientSetup]:
    config = replace(options.config, workers=1)
    method, make = assemble(options.method, config.uplink_bits, config.downlink_bits)
    built = make()
    terms = json.dumps(described(method))
    federation = prepare(config, given, built, terms=terms, nonce=agreement.nonce)
    return federation, federation.client_setup(built, make)


def _check_unchanged(place: Place, federation: Federation) -> None:
    """Refuse data that changed since this site's first part: what was held out for tests would have been trained on."""
    mark, now = place.state / "data", f"{federation.agreement.digest.hex()} {federation.data.fingerprint}\n"
    if not (place.state / _CLIENT).is_dir():
        write_whole(mark, now)
    elif mark.exists() and mark.read_text() != now:
        text = "the data of this site has changed since it first took part; restore it, or begin with a new --state"
        raise Refusal("data cannot be read", text)


def _without_metrics(setup: ClientSetup, messages: list[bytes]) -> tuple[bytes, ...]:
    kind = codec(setup.agreement.codec, setup.method(), setup.agreement).layouts[Report].kind
    return tuple(message for message in messages if frame.unwrap(message).kind != kind)


@contextmanager
def _locked(place: Place) -> Iterator[None]:
    """One process at a time uses a state directory: a late one may still be at work when the next is asked."""
    try:
        place.state.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place.state / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        text = f"state-dir must be a directory that can be written, and {place.state} is not: {error.strerror}"
        raise Refusal("state directory cannot be used", text) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class _Audit:
    """The audit log of a site, append-only: what came in and what went out, never what it said."""

    def __init__(self, place: Place, ask: Ask) -> None:
        self._path, self._ask, self._began = place.state / "audit.jsonl", ask, time.monotonic()

    def write(self, messages: tuple[bytes, ...], code: Code | None = None) -> None:
        """Append a line, which is on disk when this returns."""
        number, attempt = frame.round_of(self._ask.downlink)
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "experiment": self._ask.agreement.digest.hex(),
            "round": number,
            "attempt": attempt,
            "seconds": round(time.monotonic() - self._began, 3),
            "bytes_received": len(self._ask.downlink),
            "bytes_sent": sum(map(len, messages)),
            "reply": blake2b(b"".join(messages), digest_size=16).hexdigest() if messages else None,
            "code": code,
        }
        _append(self._path, json.dumps(line) + "\n")


def _log(place: Place | None, text: str) -> None:
    """Write to the log of the site, and to what the node prints."""
    print(f"scarlet: {text.strip().splitlines()[-1] if text.strip() else text}", flush=True)
    if place is not None:
        try:
            _append(place.state / "site.log", f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}")
        except OSError as error:
            print(f"scarlet: cannot write to {place.state}: {error.strerror}", flush=True)


def _append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
