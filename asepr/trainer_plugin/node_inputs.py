"""What the first layer reads of each node: its stored features, or, where there are none, rows that are learned."""

from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F  # noqa: N812  # the name the field uses

from asepr.errors import TrainingError
from asepr.trainer_plugin.exchange import Exchange
from asepr.trainer_plugin.local_graph import features_of
from asepr.trainer_plugin.models import keyed_normal

if TYPE_CHECKING:
    from asepr.trainer_plugin.shard_graph import ShardGraph
    from asepr.trainer_plugin.train import TrainConfig

ROWS = "rows"
"""Name of the learned rows among what is kept of them."""


class NodeInput(Protocol):
    """Rows of nodes.

    Attributes
    ----------
    width : int
    is_learned : bool
    """

    width: int
    is_learned: bool

    def local(self) -> torch.Tensor:
        """Return (num_local, width), halo rows as their owners have them; all ranks together."""

    def rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, width): some local rows as they are here."""

    def step(self) -> None:
        """Follow the gradients since the last step."""

    def set_rate(self, rate: float) -> None:
        """Set the learning rate."""

    def come_together(self) -> None:
        """Add up what ranks learned of the same nodes; all ranks together."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return what is learned here, and what the next step builds on; the tensors are those in use."""

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from where another object was; what is not in `state` stays as it is."""


class StoredFeatures:
    """Features of the shard; nothing to learn."""

    is_learned = False

    def __init__(self, shard: "ShardGraph", dtype: torch.dtype, device: torch.device | None) -> None:
        self._features = features_of(shard).to(device, dtype)
        self.width = self._features.shape[1]

    def local(self) -> torch.Tensor:
        """Return the features of all local rows."""
        return self._features

    def rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the features of some rows."""
        return self._features[rows]

    def step(self) -> None:
        """Do nothing."""

    def set_rate(self, rate: float) -> None:
        """Do nothing."""

    def come_together(self) -> None:
        """Do nothing."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return nothing."""
        return {}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Do nothing."""


class LearnedRows:
    """A row of weights a node. The first ones depend on seed and nid alone.

    In full-graph steps owners learn, and copies are told. In mini-batches every rank learns the rows that it
    reads, copies too, and when ranks come together an owner's row becomes the one before plus all that was
    learned of it anywhere.

    Parameters
    ----------
    shard : ShardGraph
    width, seed : int
    lr : float
        Of Adam; in mini-batches of an Adam that leaves alone the moments of rows not read.
    is_local : bool
        Whether steps are mini-batches.
    exchange : Exchange
    dtype : torch.dtype
    device : torch.device, optional
    """

    is_learned = True

    def __init__(
        self,
        shard: "ShardGraph",
        config: "TrainConfig",
        is_local: bool,
        exchange: Exchange,
        dtype: torch.dtype,
        device: torch.device | None,
    ) -> None:
        self.width = config.hidden
        self._num_inner = shard.num_inner
        self._exchange = exchange
        nid = torch.from_numpy(shard.nid).to(device)
        self._table = keyed_normal(nid, config.hidden, config.seed).to(dtype).requires_grad_()
        self._before = self._table.detach().clone() if is_local else None
        kind = torch.optim.SparseAdam if is_local else torch.optim.Adam
        self._optimizer: torch.optim.Optimizer = kind([self._table], lr=config.lr)

    def local(self) -> torch.Tensor:
        """Return all rows, as their owners have them."""
        return self._exchange.scatter(self._table[: self._num_inner])

    def rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Return some rows; their gradient is sparse."""
        return F.embedding(rows, self._table, sparse=True)

    def step(self) -> None:
        """Take a step of Adam."""
        if self._table.grad is not None:
            self._optimizer.step()
            self._table.grad = None

    def set_rate(self, rate: float) -> None:
        """Set the learning rate."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    @torch.no_grad()
    def come_together(self) -> None:
        """Add the changes of all copies to the owner's row before, and tell the copies."""
        assert self._before is not None, "only mini-batches learn apart"
        learned = self._exchange.return_copies(self._table - self._before)
        self._table.copy_(self._exchange.send_owned(self._before[: self._num_inner] + learned))
        self._before.copy_(self._table)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the rows as `ROWS`, and Adam's state of them."""
        return {ROWS: self._table.detach()} | {
            name: torch.as_tensor(value) for name, value in self._optimizer.state[self._table].items()
        }

    @torch.no_grad()
    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from where another object was.

        Raises
        ------
        TrainingError
            It has no rows, or those of other nodes, or of another width or type.
        """
        if ROWS not in state:
            raise TrainingError("the rank's own file must hold learned rows, got none; leave out --resume")
        for name, saved in state.items():
            if saved.dim() and (saved.shape != self._table.shape or saved.dtype != self._table.dtype):
                raise TrainingError(
                    f"{name} of learned rows must be {self._table.dtype} of shape {tuple(self._table.shape)}, got "
                    f"{saved.dtype} of shape {tuple(saved.shape)}; resume with the same partition, --hidden and --dtype"
                )
        self._table.copy_(state[ROWS])
        if self._before is not None:
            self._before.copy_(self._table)
        moments: dict[str, Any] = {name: saved for name, saved in state.items() if name != ROWS}
        if moments:
            if isinstance(self._optimizer, torch.optim.SparseAdam):
                # It counts in a plain number, and rounds otherwise where it is given a tensor.
                moments["step"] = int(moments["step"])
            groups = self._optimizer.state_dict()["param_groups"]
            self._optimizer.load_state_dict({"state": {0: moments}, "param_groups": groups})


def make_input(
    shard: "ShardGraph",
    config: "TrainConfig",
    is_local: bool,
    exchange: Exchange,
    dtype: torch.dtype,
    device: torch.device | None,
) -> NodeInput:
    """Return the stored features of a shard, or learned rows as wide as hidden layers.

    Raises
    ------
    TrainingError
        There are no features, and the task is not one for which rows are learned.
    """
    if shard.manifest.feature_width:
        return StoredFeatures(shard, dtype, device)
    if config.task != "link":
        raise TrainingError(f"{shard.path.parent}: must hold node features, got none; partition again with them")
    return LearnedRows(shard, config, is_local, exchange, dtype, device)
