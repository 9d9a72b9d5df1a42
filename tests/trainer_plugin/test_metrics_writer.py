import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from asepr.errors import TrainingError  # noqa: E402
from asepr.trainer_plugin import metrics_writer, processes  # noqa: E402
from asepr.trainer_plugin.metrics_writer import keep_quiet, make_report, scalars, show_epoch  # noqa: E402

METRICS = {"epoch": 3, "loss": 0.5, "val_acc": 0.75, "lr": 0.01, "seconds": 1.0}
METRICS |= {"exchange": {"schedule": "exact", "wait_s": 0.25, "channels": [{"peer": 1}]}}


def test_scalars_are_the_numbers_by_name():
    assert scalars(METRICS) == {"loss": 0.5, "val_acc": 0.75, "lr": 0.01, "seconds": 1.0, "exchange/wait_s": 0.25}


def test_events_hold_what_the_lines_hold(tmp_path: Path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    report = make_report(str(tmp_path / "metrics.jsonl"), str(tmp_path / "a" / "board"), keep_quiet)
    for epoch in range(3):
        report(METRICS | {"epoch": epoch, "loss": 1 / (epoch + 1)})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    found = accumulator.EventAccumulator(str(tmp_path / "a" / "board")).Reload()
    losses = [(event.step, event.value) for event in found.Scalars("loss")]
    assert losses == [(line["epoch"], pytest.approx(line["loss"])) for line in lines]
    assert set(found.Tags()["scalars"]) == set(scalars(METRICS))


def test_without_tensorboard_or_a_folder_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    if metrics_writer.importlib.util.find_spec("tensorboard"):
        with pytest.raises(TrainingError, match=r"must be a folder that can be written, got: .*; choose another"):
            make_report("", str(tmp_path / "file" / "below"), keep_quiet)(METRICS)
    monkeypatch.setattr(metrics_writer.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TrainingError, match=r"tensorboard must be installed, got none; pip install 'asepr\[tensorb"):
        make_report("", str(tmp_path), keep_quiet)
    make_report("", "", keep_quiet)


def test_an_epoch_is_one_line(capsys: pytest.CaptureFixture):
    show_epoch(METRICS)
    assert capsys.readouterr().err == "epoch    3  loss 0.5000  val_acc 0.7500  lr 0.01  1.00 s\n"


@pytest.mark.parametrize(
    ("device", "num_gpus", "message"),
    [
        ("cuda", 0, "device cuda must be on this machine, got no GPU that torch can use; give --device cpu"),
        ("auto", 1, "processes on this machine must be at most 1, its GPUs, got 2; use more machines, or give --devi"),
    ],
)
def test_device_that_is_not_there(device: str, num_gpus: int, message: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    place = processes._Place(rank=0, world_size=2, local_rank=0, local_world_size=2)
    with pytest.raises(TrainingError, match=message):
        processes._device(place, device)
    assert processes._device(place, "cpu") == torch.device("cpu")
