"""Which models a federation has, and who has which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from scarlet.arrays import Integers
from scarlet.data.sites import Augment, Scale
from scarlet.errors import ConfigError, ScarletError, WrongTypeError, short
from scarlet.models.registry import ModelFactory, Weights, model_factory, usual_model
from scarlet.rng import stream
from scarlet.training.engines.choice import Engine, choose
from scarlet.training.engines.names import EngineName
from scarlet.training.optimisers import trained_weights
from scarlet.training.train import Training

FROM_PYTHON = "python"  # stands in config.json for what a caller gave, and before the name of a model of his own


def is_from_python(option: object) -> bool:
    """Whether an option of a run stands for something that the caller gave."""
    return isinstance(option, str) and option.split(":")[0] == FROM_PYTHON


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model that the server or some clients have."""

    name: str
    factory: ModelFactory  # under its engine
    engine: Engine


class Architectures:
    """The distinct models of a federation, in the order in which they are first named."""

    def __init__(self, engine: EngineName, classes: int, inputs: Tensor) -> None:
        self._engine, self._classes, self._inputs = engine, classes, inputs  # a few inputs, to try a model on
        self._known: dict[str | int, int] = {}  # a name, or the identity of a factory -> its place
        self._tried: set[tuple[int, int]] = set()  # place and the identity of a scaling
        self.all: list[Architecture] = []

    def place(self, model: ModelFactory | str, scale: Scale, whose: str) -> int:
        """The place of a model in the list; it is tried when it is first named, and `whose` is for errors."""
        key = model if isinstance(model, str) else id(model)
        if key not in self._known:
            self._known[key] = len(self.all)
            self.all.append(self._made(model, whose))
        place = self._known[key]
        if (place, id(scale)) not in self._tried:
            self._tried.add((place, id(scale)))
            inputs = tried_scale(scale, self._inputs)
            _try(self.all[place].factory, inputs, self._classes, f"model of {whose} ({self.all[place].name})")
        return place

    def _made(self, model: ModelFactory | str, whose: str) -> Architecture:
        if isinstance(model, str):
            if is_from_python(model):
                raise ConfigError(
                    f"model {model} was given from Python, and has no name here; run or resume it from Python"
                )
            name, factory = model, model_factory(model, self._classes, tuple(self._inputs.shape[1:]))
        elif callable(model):
            name, factory = self._named(model), model
        else:
            raise WrongTypeError(
                f"model of {whose} must be a function that makes a model, or a name, got {type(model).__name__}"
            )
        _check_factory(factory, f"model of {whose} ({name})")
        engine = choose(self._engine, factory)
        return Architecture(name, engine.applied_to(factory), engine)

    def _named(self, factory: object) -> str:
        """A name for a factory of the user's that no other has."""
        inner = factory.func if isinstance(factory, partial) else factory
        name = str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")
        taken = [each.name for each in self.all]
        names = (f"{FROM_PYTHON}:{name}{'' if at == 1 else f'-{at}'}" for at in range(1, len(taken) + 2))
        return next(each for each in names if each not in taken)


def _check_factory(factory: ModelFactory, whose: str) -> None:
    """Raise ConfigError unless a factory makes a new model at each call."""
    with torch.random.fork_rng(devices=[]):
        try:
            model, other = factory(), factory()
        except Exception as error:  # whatever a factory of the user's may raise
            raise ConfigError(f"{whose} cannot be made: {short(error)}; it is called without arguments") from error
    if not isinstance(model, nn.Module):
        raise WrongTypeError(f"{whose} must be a torch.nn.Module, got {type(model).__name__}; return the model")
    if model is other:
        raise ConfigError(f"{whose} must be a new one at each call, got the same twice; make it within the function")
    own = {id(each) for each in (*model.parameters(), *model.buffers())}
    if any(id(each) in own for each in (*other.parameters(), *other.buffers())):
        raise ConfigError(f"{whose} shares weights between two calls; make all its layers within the function")
    if not any(weight.requires_grad for weight in model.parameters()):
        raise ConfigError(f"{whose} has no weight that can be trained; set requires_grad of some")
    if any(isinstance(weight, UninitializedParameter) for weight in model.parameters()):
        raise ConfigError(f"{whose} has lazy layers, whose weights have no size yet; name the sizes of their inputs")


def tried_scale(scale: Scale, inputs: Tensor) -> Tensor:
    """A few inputs as a model takes them; ConfigError for a scale that does not give them."""
    try:
        scaled = scale(inputs.clone())
    except Exception as error:  # whatever a function of the user's may raise
        raise ConfigError(f"scale cannot take a batch of shape {list(inputs.shape)}: {short(error)}") from error
    if not isinstance(scaled, Tensor) or len(scaled) != len(inputs):
        got = list(scaled.shape) if isinstance(scaled, Tensor) else type(scaled).__name__
        raise ConfigError(f"scale must give a tensor with as many samples as it takes, {len(inputs)}, got {got}")
    return scaled


def try_training(training: Training, factory: ModelFactory, inputs: Tensor) -> None:
    """Raise ConfigError where augment, optimizer or schedule, as functions of the user's, cannot be used."""
    if not isinstance(training.augment, Augment):
        try:
            changed = training.augment(inputs.clone())
        except Exception as error:
            raise ConfigError(f"augment cannot take a batch of shape {list(inputs.shape)}: {short(error)}") from error
        if not isinstance(changed, Tensor) or len(changed) != len(inputs):
            got = list(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
            raise ConfigError(f"augment must give a tensor with as many samples as it takes, {len(inputs)}, got {got}")
    with torch.random.fork_rng(devices=[]):
        optimisers = training.optimisers(factory())
    for name, function in (("optimizer", training.optimiser), ("schedule", training.schedule)):
        if function is None:
            continue
        try:
            if name == "optimizer":
                optimisers.update("local")([torch.zeros_like(weight) for weight in trained_weights(optimisers.model)])
            else:
                optimisers.optimiser("local").step()
                optimisers.end("local")
        except ScarletError:
            raise
        except Exception as error:
            raise ConfigError(f"{name} cannot take a step: {short(error)}; see docs/own-data.md") from error


@torch.no_grad()
def _try(factory: ModelFactory, inputs: Tensor, classes: int, whose: str) -> None:
    """Raise ConfigError unless a model of the factory gives scores for a few inputs."""
    with torch.random.fork_rng(devices=[]):
        try:
            model = factory()
            found = [model.eval()(inputs.clone())]
            if len(inputs) > 1:  # batch norm does not train on one sample
                found.append(model.train()(inputs.clone()))
        except Exception as error:  # whatever a model may raise
            shape = list(inputs.shape[1:])
            raise ConfigError(f"{whose} cannot take inputs of shape {shape}: {short(error)}") from error
    for scores, mode in zip(found, ("", " in training"), strict=False):
        if not isinstance(scores, Tensor) or scores.shape != (len(inputs), classes):
            got = list(scores.shape[1:]) if isinstance(scores, Tensor) else type(scores).__name__
            raise ConfigError(
                f"{whose} must give one score for each of the {classes} classes, got {got} for a sample{mode}; "
                "change its last layer, or classes"
            )


@torch.no_grad()
def relative_costs(models: Sequence[tuple[ModelFactory, Tensor]]) -> list[int]:
    """How much work a sample is for each model, in multiples of the least; with a few inputs that the model takes."""
    if len(models) == 1:
        return [1]
    from torch.utils.flop_counter import FlopCounterMode  # takes two seconds to load

    operations = []
    with torch.random.fork_rng(devices=[]):
        for factory, inputs in models:
            with FlopCounterMode(display=False) as counter:
                factory().eval()(inputs.clone())
            operations.append(max(1, counter.get_total_flops()))
    return [round(each / min(operations)) for each in operations]


def named_models(names: Sequence[str], shares: Sequence[float] | None, clients: int, seed: int) -> list[str]:
    """The model of each client: as many of each as its share, drawn by the seed."""
    if len(names) == 1:
        return [names[0]] * clients
    wanted = np.array(shares if shares is not None else [1 / len(names)] * len(names)) * clients
    counts: Integers = np.floor(wanted + 1e-9).astype(np.int64)
    largest = np.argsort(counts - wanted, kind="stable")[: clients - int(counts.sum())]
    counts[largest] += 1
    words = stream(seed, "data", purpose="models").bit_generator.random_raw(clients)
    chosen: Integers = np.empty(clients, np.int64)
    chosen[np.argsort(words, kind="stable")] = np.repeat(np.arange(len(names)), counts)
    return [names[at] for at in chosen]


def default_model(shape: tuple[int, ...]) -> str:
    """The model where none is named; ConfigError if there is none for inputs of that shape."""
    name = usual_model(shape)
    if name is None:
        raise ConfigError(
            f"model must be given for inputs of shape {list(shape)}; ours are for images [C, H, W] and for rows"
        )
    return name


def check_one_architecture(architectures: Sequence[Architecture]) -> None:
    """Raise ConfigError where weights would have to be averaged over different models."""
    if len(architectures) > 1:
        names = ", ".join(each.name for each in architectures)
        raise ConfigError(
            f"model must be the same for all clients and the server where weights are averaged, got {names}; "
            "use one model, or a method that exchanges soft-labels"
        )


def bytes_of(weights: Weights) -> int:
    """Memory of a model's weights and buffers."""
    return sum(int(value.nbytes) for value in weights.values())
