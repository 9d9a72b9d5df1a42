"""Every script runs, quickly, and writes the rows it prints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem not in ("__init__", "common"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_quick_run(script: str, tmp_path: Path):
    command = [sys.executable, "-m", f"benchmarks.{script}", "--quick", "--json", str(tmp_path / "rows.json")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert rows
    assert ended.stdout.count("\n|") >= len(rows)
