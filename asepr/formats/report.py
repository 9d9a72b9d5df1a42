"""What a run took, beside the manifest as `report.json`; and quality as one HTML file with charts."""

import io
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from asepr.errors import AseprError, OutputError, ShardError
from asepr.formats.manifest import Manifest

RUN_REPORT_NAME = "report.json"
TEMPLATE_NAME = "report.html.j2"
MOST_LABELLED_PARTS = 32


class RunReport(BaseModel):
    """Time and memory of the run that made a dataset; field names are the keys of `report.json`.

    It is no part of the dataset: nothing checks it, it differs from run to run, and it may be deleted.

    Attributes
    ----------
    seconds : float
    phase_seconds, phase_cpu_seconds : dict of str to float
        Time, and processor time of all threads, of each phase.
    peak_rss_bytes : int
        Peak resident memory of the whole process, interpreter and libraries included.
    counts : dict of dict of int
        Nodes, edges, types and feature columns: `in`, what was taken or added on the way, and `out`, in shards.
    node_types, edge_types : dict of str to list of int, or None
        Inner nodes, and edges, of each type in each part.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = Field(ge=0)
    phase_seconds: dict[str, float]
    phase_cpu_seconds: dict[str, float]
    peak_rss_bytes: int = Field(ge=0)
    counts: dict[str, dict[str, int]] = {}
    node_types: dict[str, list[int]] | None = None
    edge_types: dict[str, list[int]] | None = None


def write_run_report(folder: Path, report: RunReport) -> None:
    """Write `report.json` into a dataset folder."""
    (folder / RUN_REPORT_NAME).write_text(json.dumps(report.model_dump(), indent=1) + "\n", encoding="utf-8")


def read_run_report(folder: Path) -> RunReport | None:
    """Read `report.json` of a dataset folder; None where there is none.

    Raises
    ------
    ShardError
        It is no JSON, or a field is not what it must be.
    """
    path = folder / RUN_REPORT_NAME
    if not path.is_file():
        return None
    try:
        return RunReport.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ShardError(f"{path}: {where}: {first['msg']}; delete the file, the dataset does not need it") from error


def write_html(target: Path, name: str, manifest: Manifest, quality: dict[str, Any], run: RunReport | None) -> None:
    """Write quality, sizes and traffic of a dataset as one HTML file that refers to no other.

    Parameters
    ----------
    target : path
        Replaced where it exists.
    name : str
        What to call the dataset.
    manifest : Manifest
    quality : dict
        What `QualityReport.to_dict` returns.
    run : RunReport or None

    Raises
    ------
    AseprError
        jinja2 or matplotlib is not installed.
    OutputError
        The file cannot be written.
    """
    text = _render(name, manifest, quality, run)
    unfinished = target.with_name(f".{target.name}.partial")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(target)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise OutputError(f"{target}: must be writable, got: {error.strerror}; choose another --html") from error


def _render(name: str, manifest: Manifest, quality: dict[str, Any], run: RunReport | None) -> str:
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise _missing(error) from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files("asepr.formats").joinpath(TEMPLATE_NAME).read_text(encoding="utf-8"))
    return template.render(
        name=name,
        manifest=manifest,
        quality=quality,
        scalars={key: value for key, value in quality.items() if isinstance(value, float)},
        run=run,
        sizes=Markup(_draw_sizes(quality)),
        traffic=Markup(_draw_traffic(quality["comm_matrix"])),
    )


def _draw_sizes(quality: dict[str, Any]) -> str:
    """Return an SVG: nodes and edges of each part as bars."""
    figure = _figure(9, 3)
    parts = range(len(quality["edges"]))
    nodes, edges = figure.subplots(1, 2)
    nodes.bar(parts, quality["inner_nodes"], label="inner")
    nodes.bar(parts, quality["halo_nodes"], bottom=quality["inner_nodes"], label="halo")
    nodes.set(title="nodes", xlabel="part")
    nodes.legend()
    edges.bar(parts, quality["edges"])
    edges.set(title="edges", xlabel="part")
    return _svg(figure)


def _draw_traffic(comm_matrix: Sequence[Sequence[int]]) -> str:
    """Return an SVG: rows that each part (down) sends to each other (across) as colours."""
    figure = _figure(5, 4)
    axes = figure.subplots()
    image = axes.imshow(comm_matrix, cmap="viridis")
    axes.set(title="rows sent in one exchange", xlabel="to part", ylabel="from part")
    if len(comm_matrix) <= MOST_LABELLED_PARTS:
        axes.set_xticks(range(len(comm_matrix)))
        axes.set_yticks(range(len(comm_matrix)))
        axes.tick_params(labelsize=7)
    figure.colorbar(image)
    return _svg(figure)


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _missing(error) from error
    return Figure(figsize=(width, height), layout="constrained")


def _svg(figure: Any) -> str:
    """Return the drawing as an element to embed; the same data gives the same text."""
    import matplotlib

    drawn = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "asepr", "svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = drawn.getvalue()
    return text[text.index("<svg") :]


def _missing(error: ImportError) -> AseprError:
    return AseprError(f"report: jinja2 and matplotlib must be importable, got: {error}; pip install 'asepr[report]'")
