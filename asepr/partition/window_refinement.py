"""Fewer copies in the streaming form: edges refined a run of owners at a time, before later ones are seen."""

from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import EdgePartArray, IdArray
from asepr.partition.owned_edges import OwnedRows
from asepr.partition.replica_removal import make_counts, make_work
from asepr.partition.replica_removal_kernels import (
    Bounds,
    CopyCounts,
    Groups,
    count_copies_of_edges,
    replace_groups,
)
from asepr.partition.window_refinement_kernels import enter_lasting_copies, mark_counted_copies, number_nodes

NUM_PASSES = 2


class Window:
    """A run of owners about to be placed: its nodes, and the parts that hold them already.

    Parameters
    ----------
    rows : OwnedRows
    local : int32 (N,), -1 everywhere; so again on return
    bits : uint64 (N, W), num_copies : int16 (N,)
        State of placing, as in `place_owners`.
    """

    def __init__(
        self,
        rows: OwnedRows,
        local: npt.NDArray[np.int32],
        bits: npt.NDArray[np.uint64],
        num_copies: npt.NDArray[np.int16],
    ) -> None:
        nodes = np.empty(2 * len(rows.owner), dtype=rows.owner.dtype)
        num_owners = np.count_nonzero(np.diff(rows.owner, prepend=-1))
        self._start = np.empty(num_owners + 1, dtype=np.int64)
        self._nodes = nodes[: number_nodes(rows.owner, rows.other, local, nodes, self._start)]
        self._other = local[rows.other]
        local[self._nodes] = -1
        self._lasting, self._num_lasting = bits[self._nodes], num_copies[self._nodes]

    def refine(
        self,
        part: EdgePartArray,
        bounds: Bounds,
        unplaced: npt.NDArray[Any],
        bits: npt.NDArray[np.uint64],
        num_copies: npt.NDArray[np.int16],
        load: IdArray,
        copies: IdArray,
    ) -> None:
        """Place the edges of one owner after the other anew, as `remove_replicas` does.

        Copies that earlier owners made stay, so only what these edges add can be saved; and saving a copy is worth
        the less the more edges of its node are still to be placed.

        Parameters
        ----------
        part : int16 (n,), changed in place
        bounds : Bounds
        unplaced, bits, num_copies, load, copies
            State of placing, as in `place_owners`; brought up to date.

        Notes
        -----
        O(n K) time a pass; about 70 bytes an edge of the run in memory. Source: ours.
        """
        num_parts = len(load)
        groups = Groups(start=self._start, other=self._other, part=part)
        counts = self._counts(groups, unplaced, num_parts)._replace(load=load, copies=copies)
        work = make_work(groups, num_parts)
        for _ in range(NUM_PASSES):
            replace_groups(groups, counts, bounds, work)
        marked = np.empty_like(self._lasting)
        mark_counted_copies(
            num_parts, counts.first_slot, counts.slot_part, counts.slot_count, counts.num_copies, marked
        )
        bits[self._nodes] = marked
        num_copies[self._nodes] = counts.num_copies

    def _counts(self, groups: Groups, unplaced: npt.NDArray[Any], num_parts: int) -> CopyCounts:
        ends = np.bincount(self._other, minlength=len(self._nodes))
        ends[: len(self._start) - 1] += np.diff(self._start)
        ends += self._num_lasting
        value = (1 / (1 + unplaced[self._nodes] / num_parts)).astype(np.float32)
        counts = make_counts(ends, value, num_parts)
        enter_lasting_copies(
            self._lasting, num_parts, counts.first_slot, counts.slot_part, counts.slot_count, counts.num_copies
        )
        count_copies_of_edges(groups, counts)
        return counts
