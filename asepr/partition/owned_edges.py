"""The edges on temporary disk, each with its owner, the end of lower degree."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asepr.contracts import Buckets, DegreeArray, IdArray, PartitionProblem
from asepr.partition.owned_edges_kernels import group_by_owner, own_edges
from asepr.partition.ranking import id_dtype, ranks
from asepr.stream.read_ahead import read_ahead

BUCKET_DEGREE = 1 << 21
"""Degree sum of the nodes whose edges share a bucket: about a million edges, 12 MB."""


class OwnedRows(NamedTuple):
    """Edges of a run of owners, sorted by owner, other end and edge id; ends are ranks.

    Attributes
    ----------
    owner, other : int32 (E_bucket,), int64 from 2**31 nodes on; other <= owner
    eid : int32 (E_bucket,), int64 from 2**31 edges on
    """

    owner: npt.NDArray[Any]
    other: npt.NDArray[Any]
    eid: npt.NDArray[Any]

    def split(self, row: int) -> tuple["OwnedRows", "OwnedRows"]:
        """Return the rows before one, and the rest."""
        return OwnedRows(*(column[:row] for column in self)), OwnedRows(*(column[row:] for column in self))


class OwnedEdges:
    """All edges on temporary disk, read a bucket of owners at a time.

    Parameters
    ----------
    problem : PartitionProblem
    order : int32 or int64 (N,)
    ranked_degree : int32 or int64 (N,)
        As from `rank_nodes`.
    """

    def __init__(self, problem: PartitionProblem, order: npt.NDArray[Any], ranked_degree: DegreeArray) -> None:
        bounds = _bucket_bounds(ranked_degree)
        self._buckets = _bucket_by_owner(problem, ranks(order), bounds)

    def __iter__(self) -> Iterator[OwnedRows]:
        """Yield the buckets in rank order; a second thread reads and sorts one ahead."""
        return read_ahead(_sorted_by_owner(self._buckets.read(bucket)) for bucket in range(self._buckets.num_buckets))

    def owner_of_row(self, row: int) -> int:
        """Return the rank of the owner of one edge, counted in the order of iteration."""
        bucket = 0
        while row >= self._buckets.num_rows(bucket):
            row -= self._buckets.num_rows(bucket)
            bucket += 1
        return int(np.partition(self._buckets.read(bucket)["owner"], row)[row])

    def close(self) -> None:
        """Give the disk space back."""
        self._buckets.close()


@contextlib.contextmanager
def owned_edges(
    problem: PartitionProblem, order: npt.NDArray[Any], ranked_degree: DegreeArray, given: OwnedEdges | None
) -> Iterator[OwnedEdges]:
    """Yield the edges given; where there are none, put them on disk for as long as the block runs."""
    if given is not None:
        yield given
        return
    made = OwnedEdges(problem, order, ranked_degree)
    del order, ranked_degree  # which the caller may want to be rid of
    with contextlib.closing(made):
        yield made


def _bucket_bounds(ranked_degree: DegreeArray) -> IdArray:
    """Return the first rank of every bucket but the first, each of about `BUCKET_DEGREE` degree sum."""
    ends = np.cumsum(ranked_degree, dtype=np.int64)
    ends -= ranked_degree
    ends //= BUCKET_DEGREE
    return np.flatnonzero(ends[1:] != ends[:-1]) + 1


def _bucket_by_owner(problem: PartitionProblem, rank_of: npt.NDArray[Any], bounds: IdArray) -> Buckets:
    eid = id_dtype(problem.source.num_edges)
    dtype = np.dtype([("owner", rank_of.dtype), ("other", rank_of.dtype), ("eid", eid)])
    buckets = problem.scratch.buckets("owners", len(bounds) + 1, dtype)
    for chunk in read_ahead(problem.source):
        rows, bucket = np.empty(len(chunk), dtype=dtype), np.empty(len(chunk), dtype=np.int32)
        own_edges(chunk.src, chunk.dst, rank_of, bounds, rows["owner"], rows["other"], bucket)
        rows["eid"] = np.arange(chunk.first_eid, chunk.first_eid + len(chunk))
        buckets.append(bucket, rows)
    return buckets


def _sorted_by_owner(rows: npt.NDArray[Any]) -> OwnedRows:
    """Sort by owner, then other end; rows come in ascending eid, and equal ones stay so."""
    columns = (rows["owner"], rows["other"], rows["eid"])
    grouped = OwnedRows(*(np.empty(len(rows), dtype=column.dtype) for column in columns))
    if len(rows):
        first, last = int(rows["owner"].min()), int(rows["owner"].max())
        group_by_owner(*columns, first, np.zeros(last - first + 2, dtype=np.int64), *grouped)
    return grouped
