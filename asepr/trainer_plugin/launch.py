"""One process a shard on this machine, through torchrun's own machinery."""

import logging
import sys
import uuid
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from asepr import errors
from asepr.errors import AseprError, TrainingError
from asepr.formats.manifest import read_manifest
from asepr.trainer_plugin.local_train import LocalConfig, train_local_shard
from asepr.trainer_plugin.train import MetricsFile, TrainConfig, train_shard


def launch(path: Path | str, config: TrainConfig | LocalConfig) -> dict[str, Any]:
    """Train every shard of a dataset on this machine.

    Parameters
    ----------
    path : path
        The dataset folder.
    config : TrainConfig or LocalConfig
        With the exact exchange, or on local mini-batches.

    Returns
    -------
    dict: the summary that `Trainer.run` returns, with `num_parts`

    Raises
    ------
    AseprError
        The dataset or a process is at fault; all processes have ended.
    """
    num_parts = read_manifest(Path(path)).num_parts
    launch_config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_parts,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    # The launcher logs each child's traceback; what the user needs of it is in the error below.
    logged_before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        results: dict[int, Any] = elastic_launch(launch_config, _work)(str(path), config, sys.stderr.isatty())
    except ChildFailedError as error:
        raise _first_failure(error) from error
    finally:
        logging.disable(logged_before)
    summary: dict[str, Any] = results[0]
    return summary | {"num_parts": num_parts}


def _work(path: str, config: TrainConfig | LocalConfig, show: bool) -> dict[str, Any]:
    """Run one process. An error ends it, and the launcher then ends the others."""
    report = _show if show else _keep_quiet
    if isinstance(config, LocalConfig):
        return train_local_shard(path, config, MetricsFile(config.train.metrics, report))
    return train_shard(path, config, MetricsFile(config.metrics, report))


def _show(metrics: dict[str, Any]) -> None:
    accuracy = " ".join(f"{name} {metrics[name]:.4f}" for name in ("val_acc", "test_acc") if name in metrics)
    print(
        f"epoch {metrics['epoch']:4d}  loss {metrics['loss']:.4f}  {accuracy}  {metrics['seconds']:.2f} s",
        file=sys.stderr,
        flush=True,
    )


def _keep_quiet(metrics: dict[str, Any]) -> None:
    del metrics


def _first_failure(error: ChildFailedError) -> AseprError:
    """Return the error of the process that failed first: as it was, where it is one of ours."""
    rank, failure = error.get_first_failure()
    message = failure.message if isinstance(failure.message, str) else str(failure.message.get("message", ""))
    kind, _, reason = " ".join(message.split()).partition(": ")
    own = getattr(errors, kind, None)
    if isinstance(own, type) and issubclass(own, AseprError):
        return own(reason)
    return TrainingError(f"rank {rank}: must end well, got exit code {failure.exitcode}: {message[-300:]}; mend that")
