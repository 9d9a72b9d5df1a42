"""Graphs and problems that tests share."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from asepr.stream.scratch import ScratchDir


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[ScratchDir]:
    with ScratchDir(tmp_path / "scratch") as directory:
        yield directory


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
