"""Where each epoch's metrics go: a file of JSON lines, TensorBoard, a line on the terminal."""

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asepr.errors import TrainingError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Report = Callable[[dict[str, Any]], None]


class MetricsFile:
    """Appends each epoch's metrics to a file of JSON lines, where one is named.

    Parameters
    ----------
    path : str
        Empty: nothing is written.
    also : Report
        Called with the same metrics.
    """

    def __init__(self, path: str, also: Report) -> None:
        self._path = path
        self._also = also

    def __call__(self, metrics: dict[str, Any]) -> None:
        """Take the metrics of one epoch."""
        if self._path:
            try:
                with Path(self._path).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(metrics) + "\n")
            except OSError as error:
                raise TrainingError(
                    f"{self._path}: must be a file that can be written, got: {error.strerror}; choose another --metrics"
                ) from error
        self._also(metrics)


class TensorBoard:
    """Writes each epoch's numbers for TensorBoard, where a folder is named.

    Parameters
    ----------
    folder : str
        Empty: nothing is written.
    also : Report
        Called with the same metrics.

    Raises
    ------
    TrainingError
        TensorBoard is not installed.
    """

    def __init__(self, folder: str, also: Report) -> None:
        if folder and importlib.util.find_spec("tensorboard") is None:
            raise TrainingError("tensorboard must be installed, got none; pip install 'asepr[tensorboard]'")
        self._folder = folder
        self._also = also
        self._writer: SummaryWriter | None = None

    def __call__(self, metrics: dict[str, Any]) -> None:
        """Take the metrics of one epoch."""
        if self._folder:
            try:
                self._write(metrics)
            except OSError as error:
                raise TrainingError(
                    f"{self._folder}: must be a folder that can be written, got: {error}; choose another --tensorboard"
                ) from error
        self._also(metrics)

    def _write(self, metrics: dict[str, Any]) -> None:
        # Only the rank that reports comes here, and only it pays for the import.
        from torch.utils.tensorboard import SummaryWriter

        if self._writer is None:
            Path(self._folder).mkdir(parents=True, exist_ok=True)
            self._writer = SummaryWriter(self._folder)
        for name, value in scalars(metrics).items():
            self._writer.add_scalar(name, value, metrics["epoch"])
        self._writer.flush()


def scalars(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the numbers among an epoch's metrics by name, `GROUP/NAME` for those of a group."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            found |= {f"{name}/{below}": number for below, number in scalars(value).items()}
        elif isinstance(value, int | float) and name != "epoch":
            found[name] = value
    return found


def show_epoch(metrics: dict[str, Any]) -> None:
    """Print one line on stderr: epoch, loss, the scores of this epoch, rate and seconds."""
    scores = "  ".join(
        f"{name} {value:.4f}"
        for name, value in metrics.items()
        if name.startswith(("val_", "test_")) and isinstance(value, float)
    )
    print(
        f"epoch {metrics['epoch']:4d}  loss {metrics['loss']:.4f}  {scores}  lr {metrics['lr']:.3g}  "
        f"{metrics['seconds']:.2f} s",
        file=sys.stderr,
        flush=True,
    )


def keep_quiet(metrics: dict[str, Any]) -> None:
    """Show nothing."""
    del metrics


def make_report(metrics: str, tensorboard: str, show: Report) -> Report:
    """Return what writes metrics to the file and the folder that are named, then shows them.

    Raises
    ------
    TrainingError
        TensorBoard is wanted and not installed.
    """
    return MetricsFile(metrics, TensorBoard(tensorboard, show))
