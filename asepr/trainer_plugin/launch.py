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
from asepr.trainer_plugin.metrics_writer import keep_quiet, make_report, show_epoch
from asepr.trainer_plugin.train import TrainConfig, train_shard


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
    dict: the summary that `Trainer.run` returns, of the exchange its totals alone, with `num_parts`

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
    # Of one channel and peer at a time the metrics file tells.
    exchange = {name: value for name, value in summary["exchange"].items() if name != "channels"}
    return summary | {"exchange": exchange, "num_parts": num_parts}


def _work(path: str, config: TrainConfig | LocalConfig, show: bool) -> dict[str, Any]:
    """Run one process. An error ends it, and the launcher then ends the others."""
    options = config.train if isinstance(config, LocalConfig) else config
    report = make_report(
        options.metrics, options.tensorboard, show_epoch if show and not options.quiet else keep_quiet
    )  # fmt: skip
    if isinstance(config, LocalConfig):
        return train_local_shard(path, config, report)
    return train_shard(path, config, report)


def _first_failure(error: ChildFailedError) -> AseprError:
    """Return the error of the process that failed first: as it was, where it is one of ours."""
    rank, failure = error.get_first_failure()
    message = failure.message if isinstance(failure.message, str) else str(failure.message.get("message", ""))
    kind, _, reason = " ".join(message.split()).partition(": ")
    own = getattr(errors, kind, None)
    if isinstance(own, type) and issubclass(own, AseprError):
        return own(reason)
    return TrainingError(f"rank {rank}: must end well, got exit code {failure.exitcode}: {message[-300:]}; mend that")
