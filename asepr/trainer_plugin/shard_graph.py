"""A shard as the trainer sees it: numpy at hand at once, torch and DGL when asked for."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from asepr.contracts import NO_LABEL, SPLIT_CODES
from asepr.errors import TrainingError
from asepr.formats.shard import Shard, open_all

if TYPE_CHECKING:
    import dgl
    from torch_geometric.data import Data

    from asepr.trainer_plugin.exchange import Exchange
    from asepr.trainer_plugin.local_graph import LocalGraph


class ShardGraph(Shard):
    """One part of a dataset, for training.

    Everything of `asepr.formats.shard.Shard`, and what needs torch or DGL, which are imported only
    by the methods that use them.
    """

    def split_masks(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Return `train_mask`, `val_mask`, `test_mask`, bool (num_local,); empty without a split.

        As in the manifest's split sizes and the trainer, a node without a label is in no split.
        """
        if self.split is None:
            return {}
        usable = np.True_ if self.label is None else self.label != NO_LABEL
        return {f"{name}_mask": (self.split == code) & usable for name, code in SPLIT_CODES.items() if name}

    def exchange(self) -> "Exchange":
        """Return the exchange of this shard's halo rows over the default process group."""
        from asepr.trainer_plugin.exchange import Exchange

        return Exchange(self.plan)

    def local_graph(self) -> "LocalGraph":
        """Return the tensors that the built-in models run on."""
        from asepr.trainer_plugin.local_graph import LocalGraph

        return LocalGraph(self)

    def dgl_graph(self) -> "dgl.DGLGraph":
        """Return the local nodes and edges as a DGLGraph; see `asepr.trainer_plugin.dgl_adapter`.

        Raises
        ------
        TrainingError
            DGL is not installed.
        """
        try:
            from asepr.trainer_plugin.dgl_adapter import to_dgl
        except ImportError as error:
            raise TrainingError(f"dgl must be importable, got: {error}; pip install 'asepr[train]'") from error
        return to_dgl(self)

    def pyg_data(self) -> "Data":
        """Return the local nodes and edges as PyG's `Data`; see `asepr.trainer_plugin.pyg_adapter`.

        Raises
        ------
        TrainingError
            PyG is not installed.
        """
        try:
            from asepr.trainer_plugin.pyg_adapter import to_pyg
        except ImportError as error:
            raise TrainingError(
                f"torch_geometric must be importable, got: {error}; pip install 'asepr[pyg]'"
            ) from error
        return to_pyg(self)


def open_shard(path: Path | str, rank: int) -> ShardGraph:
    """Open one part of a dataset; only the manifest and that part's folder need to be there.

    Raises
    ------
    ShardError
        The manifest cannot be read, or there is no such part.
    """
    return ShardGraph(path, rank)


def open_shards(path: Path | str) -> list[ShardGraph]:
    """Open all parts of a dataset in rank order.

    Raises
    ------
    ShardError
        The manifest cannot be read.
    """
    return open_all(path, ShardGraph)
