"""Rows of any nodes from their owners to all ranks, and lists of numbers from all ranks to all."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from asepr.contracts import IdArray
from asepr.trainer_plugin.exchange import peer_error
from asepr.trainer_plugin.gradients import max_over_ranks, sum_over_ranks


def fetch_rows(own: torch.Tensor, own_nid: IdArray, nid: torch.Tensor, rank: int, num_parts: int) -> torch.Tensor:
    """Return the rows of some nodes, wherever they are owned; all ranks ask for the same together.

    Parameters
    ----------
    own : (n, F)
        Rows of nodes owned here. Gradients from all ranks come back to them.
    own_nid : int64 (n,), ascending
    nid : int64 (k,)
        Distinct nodes, the same on all ranks; each has its row on one of them.
    rank, num_parts : int

    Returns
    -------
    (k, F)

    Raises
    ------
    TrainingError
        A peer is gone or stalls.
    """
    wanted = nid.cpu().numpy()
    row = np.minimum(np.searchsorted(own_nid, wanted), max(len(own_nid) - 1, 0))
    is_here = own_nid[row] == wanted if len(own_nid) else np.zeros(len(wanted), dtype=np.bool_)
    place = torch.from_numpy(np.flatnonzero(is_here)).to(own.device)
    mine = own[torch.from_numpy(row[is_here]).to(own.device)]
    filled = own.new_zeros(len(wanted), own.shape[1]).index_copy(0, place, mine)
    rows: torch.Tensor = _Sum.apply(filled, rank, num_parts)  # type: ignore[no-untyped-call]
    return rows


def gather_lists(values: npt.NDArray[Any], rank: int, num_parts: int) -> npt.NDArray[Any]:
    """Return the rows of all ranks, those of rank 0 first; all ranks together.

    Parameters
    ----------
    values : int64 (n, F), n as it may be on each rank
    rank, num_parts : int

    Raises
    ------
    TrainingError
        A peer is gone or stalls.
    """
    if num_parts == 1:
        return values
    lengths = torch.zeros(num_parts, dtype=torch.int64)
    lengths[rank] = len(values)
    lengths = max_over_ranks(lengths, rank, num_parts)
    padded = torch.zeros((int(lengths.max()), values.shape[1]), dtype=torch.int64)
    padded[: len(values)] = torch.from_numpy(values)
    everyone = [torch.empty_like(padded) for _ in range(num_parts)]
    try:
        dist.all_gather(everyone, padded)
    except RuntimeError as error:
        raise peer_error(rank, error) from error
    return torch.cat([rows[:n] for rows, n in zip(everyone, lengths.tolist(), strict=True)]).numpy()


class _Sum(torch.autograd.Function):
    """The sum over ranks, whose gradient is the sum over ranks."""

    @staticmethod
    def forward(ctx, values, rank, num_parts):  # type: ignore[no-untyped-def]
        ctx.place = rank, num_parts
        total = values.clone()
        sum_over_ranks(total, rank, num_parts)
        return total

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        total = gradient.clone()
        sum_over_ranks(total, *ctx.place)
        return total, None, None
