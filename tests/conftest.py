"""Fixtures and settings that tests share."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from asepr.stream.scratch import ScratchDir

# No deadline: the first example of a test may compile kernels. Examples are the same in every CI run.
settings.register_profile("asepr", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("asepr")

# Else OGB asks the network, from a thread, for a newer version of itself; it does without this module.
sys.modules["outdated"] = None  # type: ignore[assignment]


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[ScratchDir]:
    with ScratchDir(tmp_path / "scratch") as directory:
        yield directory


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
