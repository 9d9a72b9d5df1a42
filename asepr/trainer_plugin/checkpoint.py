"""Checkpoints as safetensors: weights, optimiser state and counters, in one file that replaces the last.

Where steps build on those before, each rank writes what it keeps between them to a file of its own.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from asepr.errors import TrainingError

CHECKPOINT_NAME = "checkpoint.safetensors"
BEST_NAME = "best"
"""Folder of the checkpoint of the best evaluation, in that of the last."""
State = dict[str, torch.Tensor]
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class Keeper(Protocol):
    """What a rank keeps between steps beside the model."""

    def state(self) -> State:
        """Return what the next step builds on, by name."""

    def load_state(self, state: State) -> None:
        """Go on from what `state` returned."""


def save_checkpoint(folder: Path, model: nn.Module, optimizer: torch.optim.Adam, state: dict[str, Any]) -> None:
    """Write a checkpoint under another name, make it durable, then rename it into place.

    Parameters
    ----------
    folder : Path
        Made where it does not exist.
    model : nn.Module
    optimizer : Adam over the parameters of `model`
    state : dict of what JSON can hold
        Counters, and what a run that resumes must agree on.

    Raises
    ------
    TrainingError
        The folder cannot be written, or the disk is full; the checkpoint before stays.
    """
    _write(folder / CHECKPOINT_NAME, _named_state(model, optimizer), state)


def save_rank_state(folder: Path, rank: int, epoch: int, states: dict[str, State]) -> None:
    """Write the states, by name, that one rank needs to go on from the checkpoint of an epoch, before that.

    Raises
    ------
    TrainingError
        The folder cannot be written, or the disk is full.
    """
    tensors = {f"{name}:{key}": tensor for name, state in states.items() for key, tensor in state.items()}
    _write(_rank_path(folder, rank, epoch), tensors, {"epoch": epoch, "rank": rank})


def load_rank_state(folder: Path, rank: int, epoch: int) -> dict[str, State]:
    """Return what `save_rank_state` wrote, states of nothing left out.

    Raises
    ------
    TrainingError
        There is none of this rank and epoch, or it is damaged.
    """
    path = _rank_path(folder, rank, epoch)
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise TrainingError(
            f"{path}: must hold what rank {rank} kept between steps, got: {error}; copy it from where that rank ran, "
            "or leave out --resume"
        ) from error
    states: dict[str, State] = {}
    for joined, tensor in tensors.items():
        name, _, key = joined.partition(":")
        states.setdefault(name, {})[key] = tensor
    return states


def forget_rank_states(folder: Path, rank: int, kept: set[int]) -> None:
    """Remove a rank's files of all epochs but those kept."""
    wanted = {_rank_path(folder, rank, epoch) for epoch in kept}
    for path in folder.glob(f"rank-{rank:05d}-*.safetensors"):
        if path not in wanted:
            path.unlink(missing_ok=True)


def _rank_path(folder: Path, rank: int, epoch: int) -> Path:
    return folder / f"rank-{rank:05d}-{epoch}.safetensors"


def _write(path: Path, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
    folder, unfinished = path.parent, path.parent / f".{path.name}"
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, unfinished, metadata={"state": json.dumps(state, sort_keys=True)})
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.rename(path)
    except (OSError, SafetensorError) as error:
        raise _unwritable(folder, error) from error


def check_folder(folder: Path) -> None:
    """Make the folder, and see that a checkpoint can be written before there is work to lose.

    Raises
    ------
    TrainingError
        It cannot be made or written.
    """
    probe = folder / f".{CHECKPOINT_NAME}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise _unwritable(folder, error) from error


def load_checkpoint(folder: Path, model: nn.Module, optimizer: torch.optim.Adam) -> dict[str, Any]:
    """Load weights and optimiser state in place.

    Returns
    -------
    dict: the `state` that was saved

    Raises
    ------
    TrainingError
        There is no checkpoint, it is damaged, or it is of another model.
    """
    path = folder / CHECKPOINT_NAME
    _make_moments(model, optimizer)
    with _whole(path):
        with safe_open(path, framework="pt") as file, torch.no_grad():
            target = _named_state(model, optimizer)
            if set(file.keys()) != set(target):
                raise TrainingError(f"{path}: must be of the same model, got other weights; mend --model and --layers")
            for name, tensor in target.items():
                saved = file.get_tensor(name)
                if saved.shape != tensor.shape or saved.dtype != tensor.dtype:
                    raise TrainingError(
                        f"{path}: {name} must be {tensor.dtype} of shape {tuple(tensor.shape)}, got {saved.dtype} of "
                        f"shape {tuple(saved.shape)}; mend --hidden or --dtype"
                    )
                tensor.copy_(saved)
            state: dict[str, Any] = json.loads(file.metadata()["state"])
        missing = {"epoch", "best", "rate", "config"} - set(state)
        if missing:
            raise TrainingError(f"{path}: state must hold {', '.join(sorted(missing))}, got none; leave out --resume")
        return state


def load_weights(folder: Path, model: nn.Module) -> tuple[State, int]:
    """Return the weights of a checkpoint, as `model.load_state_dict` takes them, and its epoch.

    Raises
    ------
    TrainingError
        There is no checkpoint, it is damaged, or it is of another model.
    """
    path = folder / CHECKPOINT_NAME
    with _whole(path), safe_open(path, framework="pt") as file:
        wanted = {f"model.{name}": name for name in model.state_dict()}
        if not set(wanted) <= set(file.keys()):
            raise TrainingError(f"{path}: must be of the same model, got other weights; mend --model and --layers")
        weights = {name: file.get_tensor(key) for key, name in wanted.items()}
        return weights, int(json.loads(file.metadata()["state"])["epoch"])


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Say clearly where a checkpoint is missing or damaged."""
    if not path.is_file():
        raise TrainingError(f"{path}: must be there to resume from, got no such file; mend --checkpoint")
    try:
        yield
    except (OSError, SafetensorError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise TrainingError(f"{path}: must be a whole checkpoint, got: {error}; leave out --resume") from error


def _unwritable(folder: Path, error: Exception) -> TrainingError:
    return TrainingError(f"{folder}: must be a folder that can be written, got: {error}; choose another --checkpoint")


def _named_state(model: nn.Module, optimizer: torch.optim.Adam) -> dict[str, torch.Tensor]:
    """Return the live tensors of model and optimiser by name."""
    named: dict[str, torch.Tensor] = {f"model.{name}": parameter for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        for moment in _MOMENTS:
            named[f"adam.{name}.{moment}"] = optimizer.state[parameter][moment]
    return named


def _make_moments(model: nn.Module, optimizer: torch.optim.Adam) -> None:
    """Give a fresh optimiser its state: a step from zero gradients, undone by the load."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
