"""Options by flat name, as the command line and a YAML file give them, to configs."""

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from asepr.errors import TrainingError
from asepr.trainer_plugin.local_train import LocalConfig
from asepr.trainer_plugin.reconcile_average import AverageConfig
from asepr.trainer_plugin.reconcile_halo import parse_halo
from asepr.trainer_plugin.reconcile_losses import ContrastConfig, DistillConfig, Teacher
from asepr.trainer_plugin.train import TrainConfig

MODES = ("exact", "local")
_TRAIN = {field.name: field.default for field in dataclasses.fields(TrainConfig)}
_LOCAL = {
    "batch": 512,
    "fanout": 10,
    "sync_every": 16,
    "replica_weight": "degree",
    "use_aggregates": True,
    "correction_steps": 0,
    "unlabelled": 0,
    "staleness": 0,
    "average": "weighted",
    "bits": 32,
    "moments": "persist",
    "elasticity": 0.5,
    "distill": 0.0,
    "distill_layers": 0.0,
    "distill_teacher": "common",
    "contrast": 0.0,
    "contrast_batch": 0.0,
    "halo": "none",
    "halo_codec": "int8",
}
_EXCHANGE = ("exchange", "codec", "exact_every", "smoothing", "gradients")
"""Options of `TrainConfig` that say how halo rows and gradients travel, which local training does not send."""
_NESTED = {"average", "distill", "contrast", "halo"}
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
    return LocalConfig(
        train=train,
        **{name: values[name] for name in _plain()},
        average=AverageConfig(
            kind=values["average"],
            bits=values["bits"],
            moments=values["moments"],
            elasticity=values["elasticity"],
        ),
        distill=_distill(values["distill"], values["distill_layers"], values["distill_teacher"]),
        contrast=_contrast(values["contrast"], values["contrast_batch"]),
        halo=parse_halo(values["halo"], values["halo_codec"], train.seed, train.timeout_s),
    )


def read_options(path: Path) -> dict[str, Any]:
    """Read flat options from a YAML file.

    Raises
    ------
    TrainingError
        The file is missing or no mapping of names to values; an option is unknown, comes twice, or has a value
        of another type. The line is named.
    """
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:200]
        raise TrainingError(f"{path}: must be a YAML file that can be read, got: {reason}; mend it") from error
    if not isinstance(node, yaml.MappingNode) or not all(isinstance(name, str) for name in values):
        raise TrainingError(f"{path}: must be a mapping of options to values, got {type(values).__name__}; mend it")
    options: dict[str, Any] = {}
    for key, _ in node.value:
        name = key.value.replace("-", "_")
        where = f"{path}: line {key.start_mark.line + 1}: "
        if name in options:
            raise TrainingError(f"{where}option must be there once, got '{name}' again; leave out one")
        options[name] = _checked(name, values[key.value], where)
    return options


def write_options(config: TrainConfig | LocalConfig) -> str:
    """Return every option of a config and its value as YAML, which `read_options` and `make_config` take back."""
    return str(yaml.safe_dump(flat_options(config), sort_keys=False))


def flat_options(config: TrainConfig | LocalConfig) -> dict[str, Any]:
    """Return the options that mean a config, those of its mode alone."""
    if isinstance(config, TrainConfig):
        return {"mode": "exact"} | dataclasses.asdict(config)
    train = {name: value for name, value in dataclasses.asdict(config.train).items() if name not in _EXCHANGE}
    distill, contrast = config.distill, config.contrast
    return (
        {"mode": "local"}
        | train
        | {name: getattr(config, name) for name in _plain()}
        | {
            "average": config.average.kind,
            "bits": config.average.bits,
            "moments": config.average.moments,
            "elasticity": config.average.elasticity,
            "distill": distill.logits if distill else 0.0,
            "distill_layers": distill.layers if distill else 0.0,
            "distill_teacher": distill.teacher if distill else "common",
            "contrast": contrast.previous if contrast else 0.0,
            "contrast_batch": contrast.batch if contrast else 0.0,
            "halo": f"historical:{config.halo.every}" if config.halo else "none",
            "halo_codec": config.halo.codec if config.halo else _LOCAL["halo_codec"],
        }
    )


def _plain() -> list[str]:
    """Return the options of `LocalConfig` that are its fields."""
    fields = {field.name for field in dataclasses.fields(LocalConfig)} - _NESTED
    return [name for name in _LOCAL if name in fields]


def _checked(name: str, value: Any, where: str = "") -> Any:
    if name not in DEFAULTS:
        near = difflib.get_close_matches(name, DEFAULTS, 1)
        remedy = f"is it {near[0]}?" if near else "mend its name"
        raise TrainingError(f"{where}option must be one of {', '.join(DEFAULTS)}, got '{name}'; {remedy}")
    wanted = type(DEFAULTS[name])
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise TrainingError(f"{where}{name} must be of type {wanted.__name__}, got {value!r}; mend the value")
    return value


def _distill(logits: float, layers: float, teacher: Teacher) -> DistillConfig | None:
    if not logits and not layers:
        return None
    return DistillConfig(logits=logits, layers=layers, teacher=teacher)


def _contrast(previous: float, batch: float) -> ContrastConfig | None:
    return ContrastConfig(previous=previous, batch=batch) if previous or batch else None
