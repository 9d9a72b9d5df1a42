"""Options by flat name, as the command line and a YAML file give them, to configs."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from asepr.errors import TrainingError
from asepr.trainer_plugin.local_train import LocalConfig
from asepr.trainer_plugin.reconcile_average import AverageConfig
from asepr.trainer_plugin.reconcile_losses import ContrastConfig, DistillConfig
from asepr.trainer_plugin.train import TrainConfig

MODES = ("exact", "local")
_TRAIN = {field.name: field.default for field in dataclasses.fields(TrainConfig)}
_LOCAL = {
    "batch": 512,
    "fanout": 10,
    "sync_every": 16,
    "schedule": "constant",
    "replica_weight": "degree",
    "use_aggregates": True,
    "correction_steps": 0,
    "predictions": "",
    "average": "weighted",
    "bits": 32,
    "moments": "persist",
    "elasticity": 0.5,
    "distill": 0.0,
    "distill_layers": 0.0,
    "contrast": 0.0,
    "contrast_batch": 0.0,
}
_EXCHANGE = ("exchange", "codec", "exact_every", "smoothing", "gradients")
"""Options of `TrainConfig` that say how halo rows and gradients travel, which local training does not send."""
_NESTED = {"average", "distill", "contrast"}
DEFAULTS: dict[str, Any] = {"mode": "exact", **_TRAIN, **_LOCAL}
"""Every option and its default; the type of the default is that of the option."""


def make_config(options: Mapping[str, Any]) -> TrainConfig | LocalConfig:
    """Return the config that flat options mean; those left out have their defaults.

    Raises
    ------
    TrainingError
        There is no such option, or a value is of another type or out of its range.
    """
    values = DEFAULTS | {name: _checked(name, value) for name, value in options.items()}
    if values["mode"] not in MODES:
        raise TrainingError(f"mode must be one of {', '.join(MODES)}, got '{values['mode']}'; choose one of these")
    train = TrainConfig(**{name: values[name] for name in _TRAIN})
    if values["mode"] == "exact":
        unused = sorted(name for name in _LOCAL if values[name] != _LOCAL[name])
        if unused:
            raise TrainingError(f"{unused[0]} must come with mode local, got mode exact; give --mode local")
        return train
    unused = sorted(name for name in _EXCHANGE if values[name] != _TRAIN[name])
    if unused:
        raise TrainingError(f"{unused[0]} must come with mode exact, got mode local; leave it out")
    plain = _LOCAL.keys() & {field.name for field in dataclasses.fields(LocalConfig)} - _NESTED
    return LocalConfig(
        train=train,
        **{name: values[name] for name in plain},
        average=AverageConfig(
            kind=values["average"],
            bits=values["bits"],
            moments=values["moments"],
            elasticity=values["elasticity"],
        ),
        distill=_distill(values["distill"], values["distill_layers"]),
        contrast=_contrast(values["contrast"], values["contrast_batch"]),
    )


def read_options(path: Path) -> dict[str, Any]:
    """Read flat options from a YAML file.

    Raises
    ------
    TrainingError
        The file is missing or no mapping of names to values.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:200]
        raise TrainingError(f"{path}: must be a YAML file that can be read, got: {reason}; mend it") from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise TrainingError(f"{path}: must be a mapping of options to values, got {type(values).__name__}; mend it")
    return {name.replace("-", "_"): value for name, value in values.items()}


def _checked(name: str, value: Any) -> Any:
    if name not in DEFAULTS:
        raise TrainingError(f"option must be one of {', '.join(DEFAULTS)}, got '{name}'; mend its name")
    wanted = type(DEFAULTS[name])
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise TrainingError(f"{name} must be of type {wanted.__name__}, got {value!r}; mend the value")
    return value


def _distill(logits: float, layers: float) -> DistillConfig | None:
    return DistillConfig(logits=logits, layers=layers) if logits or layers else None


def _contrast(previous: float, batch: float) -> ContrastConfig | None:
    return ContrastConfig(previous=previous, batch=batch) if previous or batch else None
