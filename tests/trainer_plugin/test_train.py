import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from safetensors.torch import load_file  # noqa: E402

from asepr.errors import TrainingError  # noqa: E402
from asepr.trainer_plugin.checkpoint import CHECKPOINT_NAME  # noqa: E402
from asepr.trainer_plugin.launch import launch  # noqa: E402
from asepr.trainer_plugin.metrics_writer import MetricsFile  # noqa: E402
from asepr.trainer_plugin.shard_graph import open_shard  # noqa: E402
from asepr.trainer_plugin.train import TrainConfig, Trainer, train_shard  # noqa: E402
from tests.trainer_plugin.processes import free_port, run_ranks  # noqa: E402
from tests.trainer_plugin.shards import write_random_shards  # noqa: E402
from tests.trainer_plugin.test_exactness import make_graph  # noqa: E402


def write(path: Path, num_parts: int, layout: str = "vertex-cut") -> Path:
    graph, features, label, split = make_graph()
    return write_random_shards(path, graph, num_parts, layout, features, label, split)


def train(folder: Path, config: TrainConfig) -> dict:
    return Trainer(open_shard(folder, 0), config).run(lambda metrics: None)


def test_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path):
    folder = write(tmp_path / "d", 1)
    config = TrainConfig(epochs=9, hidden=8, checkpoint=str(tmp_path / "whole"), checkpoint_every=4)
    expected = train(folder, config)
    train(folder, replace(config, epochs=4, checkpoint=str(tmp_path / "halves")))
    resumed = train(folder, replace(config, checkpoint=str(tmp_path / "halves"), resume=True))
    whole, halves = (load_file(tmp_path / name / CHECKPOINT_NAME) for name in ("whole", "halves"))
    assert all(torch.equal(whole[name], halves[name]) for name in whole)
    assert resumed | {"seconds": 0, "exchange": 0} == expected | {"seconds": 0, "exchange": 0}


def resume_on_every_rank(rank: int, folder: Path, checkpoints: Path) -> dict[str, np.ndarray]:
    config = TrainConfig(epochs=6, hidden=8, checkpoint=str(checkpoints), resume=True)
    trainer = Trainer(open_shard(folder, rank), config)
    trainer.run(lambda metrics: None)
    return {name: value.numpy() for name, value in trainer.model.state_dict().items()}


def test_launched_run_with_dropout_equals_one_process_and_resumes(tmp_path: Path):
    alone, parted = write(tmp_path / "one", 1), write(tmp_path / "two", 2, "edge-cut")
    config = TrainConfig(epochs=6, hidden=8, dropout=0.5, dtype="float64", metrics=str(tmp_path / "metrics.jsonl"))
    expected = train(alone, replace(config, metrics=""))
    found = launch(parted, config)
    assert found["loss"] == pytest.approx(expected["loss"], abs=1e-12)
    assert found["test_acc"] == expected["test_acc"]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 6
    # A checkpoint of one process goes on in two, with the same result.
    config = replace(config, dtype="float32", metrics="", checkpoint=str(tmp_path / "c"))
    train(alone, replace(config, epochs=3))
    train(alone, replace(config, checkpoint=str(tmp_path / "whole")))
    whole = load_file(tmp_path / "whole" / CHECKPOINT_NAME)
    for weights in run_ranks(2, resume_on_every_rank, parted, tmp_path / "c"):
        for name, value in weights.items():
            np.testing.assert_allclose(value, whole[f"model.{name}"].numpy(), atol=1e-5)


def test_checkpoint_of_another_model(tmp_path: Path):
    folder = write(tmp_path / "d", 1)
    config = TrainConfig(epochs=1, hidden=8, checkpoint=str(tmp_path / "c"))
    train(folder, config)
    for change, message in (
        ({"model": "gcn"}, "must be of the same model, got other weights"),
        ({"hidden": 9}, "must be torch.float32 of shape"),
        ({"lr": 0.5}, "lr must be 0.01 as in the checkpoint, got 0.5"),
    ):
        with pytest.raises(TrainingError, match=message):
            train(folder, replace(config, resume=True, **change))
    with pytest.raises(TrainingError, match="epochs must be above 1, those already trained, got 1; ask for more"):
        train(folder, replace(config, resume=True))
    (tmp_path / "c" / CHECKPOINT_NAME).write_bytes(b"short")
    with pytest.raises(TrainingError, match="must be a whole checkpoint, got"):
        train(folder, replace(config, resume=True))


@pytest.mark.parametrize("option", ["checkpoint", "metrics"])
def test_output_that_cannot_be_written(option: str, tmp_path: Path):
    (tmp_path / "file").write_text("")
    config = TrainConfig(epochs=1, hidden=8, **{option: str(tmp_path / "file" / "below")})
    report = MetricsFile(config.metrics, lambda metrics: None)
    with pytest.raises(TrainingError, match=f"that can be written, got: .*; choose another --{option}"):
        Trainer(open_shard(write(tmp_path / "d", 1), 0), config).run(report)


def test_peer_that_never_joins(tmp_path: Path):
    (rank,) = start_by_hand([write(tmp_path / "d", 2)], ["--timeout-s", "3"], num_ranks=2)
    _, errors = rank.communicate(timeout=90)
    assert rank.returncode == 2
    assert [line for line in errors.splitlines() if "every peer must answer within the timeout" in line]
    assert "Traceback" not in errors


def test_wrong_number_of_processes(tmp_path: Path):
    folder = write(tmp_path / "d", 2)
    with pytest.raises(TrainingError, match="processes must be one a part, 2, got 1; mend --nproc-per-node"):
        train_shard(folder, TrainConfig(), lambda metrics: None)


def test_error_of_one_rank_is_said_once_by_the_launcher(tmp_path: Path):
    folder = write(tmp_path / "d", 2)
    with pytest.raises(TrainingError, match=r"^model must be one of sage, .*, got 'foo'; choose one of these$"):
        launch(folder, TrainConfig(model="foo"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"lr": float("nan")}, "lr and timeout_s must be positive"),
        ({"dtype": "float16"}, "dtype must be float32 or float64, got 'float16'"),
        ({"resume": True}, "resume must come with a checkpoint folder, got none"),
    ],
)
def test_options_out_of_range(change: dict, message: str):
    with pytest.raises(TrainingError, match=message):
        TrainConfig(**change)


@pytest.mark.parametrize(("end", "timeout_s"), [(signal.SIGKILL, "30"), (signal.SIGSTOP, "5")])
@pytest.mark.parametrize("exchange", ["exact", "pipelined"])
def test_rank_that_dies_or_stalls_ends_every_other_with_one_clear_line(
    exchange: str, end: signal.Signals, timeout_s: str, tmp_path: Path
):
    folder = write(tmp_path / "d", 3)
    metrics = tmp_path / "metrics.jsonl"
    options = ["--epochs", "1000000", "--timeout-s", timeout_s, "--metrics", str(metrics), "--exchange", exchange]
    ranks = start_by_hand([folder] * 3, options)
    try:
        _wait_for(metrics)
        ranks[2].send_signal(end)
        for rank in ranks[:2]:
            _, errors = rank.communicate(timeout=40)
            assert rank.returncode == 2
            lines = [line for line in errors.splitlines() if line.startswith("asepr: error")]
            assert len(lines) == 1
            assert "every peer must answer within the timeout, got none from rank 2:" in lines[0]
            assert "resume from the last checkpoint" in lines[0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.fixture
def two_hosts() -> Iterator[list[list[str]]]:
    """Make two network namespaces with a cable between; yield how to run a command on each."""
    names, ends = ([f"{kind}{os.getpid()}-{side}" for side in "ab"] for kind in ("asepr", "v"))
    commands = [["netns", "add", name] for name in names]
    commands += [["link", "add", ends[0], "type", "veth", "peer", "name", ends[1]]]
    for side, (name, end) in enumerate(zip(names, ends, strict=True)):
        commands += [["link", "set", end, "netns", name], ["-n", name, "link", "set", "lo", "up"]]
        commands += [["-n", name, "addr", "add", f"10.79.0.{side + 1}/24", "dev", end]]
        commands += [["-n", name, "link", "set", end, "up"]]
    try:
        for command in commands:
            made = subprocess.run(["ip", *command], check=False, capture_output=True, text=True)
            if made.returncode:
                pytest.skip(f"hosts cannot be made: {made.stderr.strip()}")
        environments = [f"GLOO_SOCKET_IFNAME={end}" for end in ends]
        yield [["ip", "netns", "exec", name, "env", e] for name, e in zip(names, environments, strict=True)]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="hosts need root and iproute2")
@pytest.mark.parametrize("exchange", ["exact", "pipelined"])
def test_link_that_goes_down_ends_every_rank_with_one_clear_line(
    exchange: str, two_hosts: list[list[str]], tmp_path: Path
):
    folder, metrics = write(tmp_path / "d", 2), tmp_path / "metrics.jsonl"
    options = ["--epochs", "1000000", "--timeout-s", "4", "--metrics", str(metrics), "--exchange", exchange]
    ranks = start_by_hand([folder] * 2, options, hosts=two_hosts)
    try:
        _wait_for(metrics)
        interface = two_hosts[1][-1].partition("=")[2]
        subprocess.run([*two_hosts[1], "ip", "link", "set", interface, "down"], check=True)
        for rank, process in enumerate(ranks):
            _, errors = process.communicate(timeout=30)
            assert process.returncode == 2, errors
            (line,) = [line for line in errors.splitlines() if line.startswith("asepr: error")]
            assert f"rank {rank}: every peer must answer within the timeout" in line
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def test_machines_that_hold_only_their_own_part_whatever_their_rank(tmp_path: Path):
    folder = write(tmp_path / "d", 2)
    expected = launch(folder, TrainConfig(epochs=3, hidden=8))
    machines = [tmp_path / "has-part-1", tmp_path / "has-part-0"]
    for machine, part in zip(machines, ("part-00001", "part-00000"), strict=True):
        machine.mkdir()
        shutil.copy(folder / "manifest.json", machine)
        shutil.copytree(folder / part, machine / part)
    outputs = [rank.communicate(timeout=120) for rank in start_by_hand(machines, ["--epochs", "3", "--hidden", "8"])]
    lines = [json.loads(line) for output, _ in outputs for line in output.splitlines()]
    assert lines[-1]["loss"] == pytest.approx(expected["loss"], abs=1e-6)
    assert len(lines) == 3


def test_machine_with_too_few_parts(tmp_path: Path):
    folder = write(tmp_path / "d", 2)
    shutil.rmtree(folder / "part-00000")
    shutil.rmtree(folder / "part-00001")
    (rank,) = start_by_hand([folder], [], num_ranks=2)
    _, errors = rank.communicate(timeout=60)
    assert rank.returncode == 2
    assert "parts on this machine must be all 2 or one a process here, 1, got 0; copy part folders" in errors


def start_by_hand(
    folders: list[Path], options: list[str], num_ranks: int = 0, hosts: list[list[str]] | None = None
) -> list[subprocess.Popen]:
    """Start one process a folder, as torchrun on machines of their own would; on hosts, where there are any."""
    address = "127.0.0.1" if hosts is None else "10.79.0.1"
    environment = os.environ | {"MASTER_ADDR": address, "MASTER_PORT": str(free_port())}
    environment |= {"WORLD_SIZE": str(num_ranks or len(folders))}
    return [
        subprocess.Popen(
            [
                *(hosts[rank] if hosts else []),
                sys.executable,
                "-m",
                "asepr.trainer_plugin.train",
                str(folder),
                *options,
            ],
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, folder in enumerate(folders)
    ]


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 90
    while not path.exists():
        assert time.monotonic() < deadline, "training did not start"
        time.sleep(0.05)
