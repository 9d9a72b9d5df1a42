import dataclasses
import inspect
import json
from pathlib import Path

import pytest
import yaml

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from typer.testing import CliRunner  # noqa: E402

from asepr.cli import app  # noqa: E402
from asepr.errors import TrainingError  # noqa: E402
from asepr.trainer_plugin import launch  # noqa: E402
from asepr.trainer_plugin.local_train import LocalConfig  # noqa: E402
from asepr.trainer_plugin.options import _EXCHANGE as EXCHANGE_OPTIONS  # noqa: E402
from asepr.trainer_plugin.options import DEFAULTS, flat_options, make_config, read_options  # noqa: E402
from asepr.trainer_plugin.train import TrainConfig  # noqa: E402


def test_defaults_are_those_of_the_configs():
    assert make_config({}) == TrainConfig()
    assert make_config({"mode": "local"}) == LocalConfig()


def test_every_field_has_its_option():
    config = make_config({"mode": "local", "epochs": 3, "bits": 16, "distill": 1, "contrast_batch": 0.5})
    assert isinstance(config, LocalConfig)
    assert config.train.epochs == 3
    assert config.average.bits == 16
    assert config.distill is not None
    assert (config.distill.logits, config.distill.layers) == (1.0, 0.0)
    assert config.contrast is not None
    assert (config.contrast.previous, config.contrast.batch) == (0.0, 0.5)


def test_every_option_of_local_training_comes_back():
    given = {
        "mode": "local",
        "halo": "historical:3",
        "halo_codec": "int4",
        "distill": 0.25,
        "distill_teacher": "ensemble",
        "unlabelled": 7,
    }
    config = make_config(given)
    assert flat_options(config).keys() == DEFAULTS.keys() - set(EXCHANGE_OPTIONS)
    assert make_config(flat_options(config)) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "local", "unlabelled": 5}, "unlabelled must come with task node and with distill or contrast"),
        ({"mode": "fast"}, "mode must be one of exact, local, got 'fast'"),
        ({"batch": 3}, "batch must come with mode local, got mode exact"),
        ({"epochs": "many"}, "epochs must be of type int, got 'many'"),
        ({"epochs": True}, "epochs must be of type int, got True"),
        ({"foo": 1}, "option must be one of mode, .*, got 'foo'"),
    ],
)
def test_options_that_cannot_be(options: dict, message: str):
    with pytest.raises(TrainingError, match=message):
        make_config(options)


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: [", "must be a YAML file that can be read"), ("- 1", "must be a mapping of options to values, got list")],
)
def test_files_that_are_no_options(text: str, message: str, tmp_path: Path):
    (tmp_path / "train.yaml").write_text(text)
    with pytest.raises(TrainingError, match=message):
        read_options(tmp_path / "train.yaml")
    with pytest.raises(TrainingError, match=r"none\.yaml: must be a YAML file that can be read, got"):
        read_options(tmp_path / "none.yaml")


def test_command_line_goes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "train.yaml").write_text("mode: local\nsync-every: 4\nepochs: 7\n")
    taken = []

    def stop(path: Path, config: LocalConfig) -> None:
        taken.append(config)
        raise TrainingError("stopped here")

    monkeypatch.setattr(launch, "launch", stop)
    arguments = ["train", str(tmp_path), "--config", str(tmp_path / "train.yaml"), "--epochs", "30", "--hidden", "5"]
    assert CliRunner().invoke(app, arguments).exit_code == 2
    train = TrainConfig(epochs=30, hidden=5)
    assert taken == [dataclasses.replace(LocalConfig(), train=train, sync_every=4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode: local\nepoch: 3\n", r"train\.yaml: line 2: option must be one of .*, got 'epoch'; is it epochs\?"),
        ("# first\n\nhidden: wide\n", r"train\.yaml: line 3: hidden must be of type int, got 'wide'"),
        ("sync-every: 3\nsync_every: 4\n", "line 2: option must be there once, got 'sync_every' again"),
    ],
)
def test_errors_of_a_file_name_the_line(text: str, message: str, tmp_path: Path):
    (tmp_path / "train.yaml").write_text(text)
    with pytest.raises(TrainingError, match=message):
        read_options(tmp_path / "train.yaml")


@pytest.mark.parametrize("options", [
    ["--exchange", "pipelined", "--lr", "0.5", "--resume", "--checkpoint", "c"],
    ["--mode", "local", "--batch", "3", "--distill", "0.5", "--average", "elastic", "--quiet", "--patience", "4"],
])  # fmt: skip
def test_printed_config_can_be_fed_back(options: list[str], tmp_path: Path):
    printed = CliRunner().invoke(app, ["train", str(tmp_path), *options, "--print-config"])
    assert printed.exit_code == 0
    (tmp_path / "train.yaml").write_text(printed.output)
    again = CliRunner().invoke(
        app, ["train", str(tmp_path), "--config", str(tmp_path / "train.yaml"), "--print-config"]
    )
    assert again.output == printed.output
    here = CliRunner().invoke(
        app,
        ["train", str(tmp_path), "--config", str(tmp_path / "train.yaml"), "--epochs", "7", "--print-config", "--json"],
    )
    assert json.loads(here.output) == yaml.safe_load(printed.output) | {"epochs": 7}


def test_every_option_of_the_file_is_a_flag():
    (command,) = (found for found in app.registered_commands if found.name == "train")
    assert command.callback is not None
    flags = set(inspect.signature(command.callback).parameters)
    assert set(DEFAULTS) <= flags
