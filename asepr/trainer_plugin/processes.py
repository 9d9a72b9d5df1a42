"""Which part a process trains, on what device, and how it meets the others."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from asepr.errors import TrainingError
from asepr.formats.manifest import part_folder, read_manifest
from asepr.trainer_plugin.exchange import peer_error
from asepr.trainer_plugin.shard_graph import ShardGraph, open_shard

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnProcess:
    """What one process trains, and where."""

    shard: ShardGraph
    device: torch.device


@contextlib.contextmanager
def own_shard(path: Path | str, timeout_s: float, device: str = "auto") -> Iterator[OwnProcess]:
    """Open this process' shard, and be among the others while the block runs.

    Its place among the processes is in torchrun's environment. Where all parts are at hand a process takes
    the part of its rank. Where a machine holds some parts only, its processes take these, in order,
    whatever ranks torchrun gave them: the number of the part is the rank among the trainers.

    Raises
    ------
    AseprError
        The shard is at fault, the number of processes is wrong, or a peer does not come.
    """
    place = _Place.from_environment()
    shard = open_shard(path, _own_part(Path(path), place))
    own_device = _device(place, device)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // place.local_world_size))
    if place.world_size > 1:
        _join(shard, own_device, timeout_s)
    try:
        yield OwnProcess(shard=shard, device=own_device)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Which process this is, as torchrun says."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int

    @classmethod
    def from_environment(cls) -> "_Place":
        values = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
        return cls(**{name.lower(): int(os.environ.get(name, default)) for name, default in values.items()})


def _own_part(path: Path, place: _Place) -> int:
    num_parts = read_manifest(path).num_parts
    if place.world_size != num_parts:
        raise TrainingError(
            f"{path}: processes must be one a part, {num_parts}, got {place.world_size}; mend --nproc-per-node"
        )
    here = [part for part in range(num_parts) if (path / part_folder(part)).is_dir()]
    if len(here) == num_parts:
        return place.rank
    if len(here) != place.local_world_size:
        raise TrainingError(
            f"{path}: parts on this machine must be all {num_parts} or one a process here, {place.local_world_size}, "
            f"got {len(here)}; copy part folders to where they are trained"
        )
    return here[place.local_rank]


def _join(shard: ShardGraph, device: torch.device, timeout_s: float) -> None:
    """Set up the default process group, in which the number of a part is its rank."""
    try:
        dist.init_process_group(
            # Numbers that are counted on the CPU are exchanged there too.
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            timeout=timedelta(seconds=timeout_s),
            rank=shard.rank,
            world_size=shard.num_parts,
        )
    except RuntimeError as error:
        raise peer_error(shard.rank, error) from error


def _device(place: _Place, device: str) -> torch.device:
    num_gpus = 0 if device == "cpu" else torch.cuda.device_count()
    if device == "cuda" and not num_gpus:
        raise TrainingError("device cuda must be on this machine, got no GPU that torch can use; give --device cpu")
    if not num_gpus:
        return torch.device("cpu")
    if place.local_world_size > num_gpus:
        raise TrainingError(
            f"processes on this machine must be at most {num_gpus}, its GPUs, got {place.local_world_size}; "
            "use more machines, or give --device cpu"
        )
    torch.cuda.set_device(place.local_rank)
    return torch.device("cuda", place.local_rank)
