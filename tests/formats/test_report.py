"""The run's report lies beside the manifest and belongs to no dataset; the HTML file stands alone."""

import json
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

import asepr
from asepr.errors import AseprError, OutputError, ShardError
from asepr.formats.manifest import read_manifest
from asepr.formats.report import read_run_report, write_html
from tests.graphs import NAMED_GRAPHS


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    asepr.partition(NAMED_GRAPHS["skewed"].source(), tmp_path / "out", num_parts=3)
    return tmp_path / "out"


def report_of(dataset: Path, target: Path, name: str = "out") -> str:
    write_html(target, name, read_manifest(dataset), asepr.inspect(dataset).to_dict(), read_run_report(dataset))
    return target.read_text()


class Reader(HTMLParser):
    """Collects the cells of tables, and everything that would load another file."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.references: list[str] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._in_cell = tag in ("td", "th")
        self.references += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.cells.append(data)
            self._in_cell = False


def test_run_report_holds_what_the_run_returned(tmp_path: Path):
    result = asepr.partition(NAMED_GRAPHS["skewed"].source(), tmp_path / "out", num_parts=3)
    report = read_run_report(tmp_path / "out")
    assert report is not None
    assert report.phase_seconds == result.phase_seconds
    assert set(report.phase_cpu_seconds) == {"read", "assign", "write shards", "measure"}
    assert report.seconds == pytest.approx(sum(report.phase_seconds.values()))


def test_dataset_is_whole_without_the_run_report_and_with_a_damaged_one(dataset: Path):
    (dataset / "report.json").write_text("{")
    assert asepr.verify(dataset) == []
    with pytest.raises(ShardError, match=r"report\.json: the file: .*; delete the file"):
        read_run_report(dataset)
    (dataset / "report.json").unlink()
    assert asepr.verify(dataset) == []
    assert read_run_report(dataset) is None


def test_html_stands_alone_and_states_every_figure(dataset: Path, tmp_path: Path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    text = report_of(dataset, tmp_path / "r.html")
    reader = Reader()
    reader.feed(text)
    quality = asepr.inspect(dataset)
    for name in ("replication_factor", "edge_cut", "edge_balance", "replica_balance", "peak_replication"):
        assert reader.cells[reader.cells.index(name.replace("_", " ")) + 1] == f"{getattr(quality, name):.4f}"
    for value in [*quality.edges, *quality.inner_nodes, *quality.halo_nodes]:
        assert f"{value:,}" in reader.cells
    assert "assign" in reader.cells
    assert all(reference.startswith(("#", "data:")) for reference in reader.references)
    assert "<script" not in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 2
    for drawing in drawings:
        ET.fromstring(drawing)
    assert report_of(dataset, tmp_path / "again.html") == text


def test_html_escapes_what_comes_from_outside(dataset: Path, tmp_path: Path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    manifest = json.loads((dataset / "manifest.json").read_text())
    manifest["method"] = "<script>alert(1)</script>"
    manifest["config"]["note"] = "<img src=x>"
    (dataset / "manifest.json").write_text(json.dumps(manifest))
    (dataset / "report.json").unlink()
    text = report_of(dataset, tmp_path / "r.html", name="a</title><b>")
    assert "<script" not in text
    assert "<img src=x" not in text
    assert "a</title>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_html_that_cannot_be_written(dataset: Path, tmp_path: Path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    with pytest.raises(OutputError, match="must be writable, got: No such file or directory; choose another --html"):
        report_of(dataset, tmp_path / "nowhere" / "r.html")
    with pytest.raises(OutputError, match="must be writable, got: Is a directory"):
        report_of(dataset, dataset)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_html_without_its_libraries_says_what_to_install(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(AseprError, match=r"got: import of jinja2 .*; pip install 'asepr\[report\]'"):
        report_of(dataset, tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()
