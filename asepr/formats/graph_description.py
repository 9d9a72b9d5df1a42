"""`graph.yaml`: node types, edge types, and the files and columns that they come from."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from asepr.contracts import Duplicates, SelfLoops
from asepr.errors import ConfigError
from asepr.formats.edge_readers import EdgeColumns
from asepr.formats.graph_files import EdgeFiles, EdgeTypeName, FilteredTable, GraphFiles, NodeFiles
from asepr.formats.locations import is_remote
from asepr.formats.node_sources import NodeColumns
from asepr.formats.tables import Table, open_table

SUFFIXES = (".yaml", ".yml")


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeEntry(_Entry):
    """The nodes of one type."""

    type: str = Field(pattern=r"^[^:/\\.][^:/\\]*$")
    files: list[str] = []
    where: dict[str, str | int | bool] = {}
    id: str = "id"
    label: str = "label"
    split: str = "split"
    features: str | None = None
    feature_columns: list[str] = []


class EdgeEntry(_Entry):
    """The edges of one type; `type` is `source type:relation:destination type`."""

    type: str = Field(pattern=r"^[^:/\\.][^:/\\]*:[^:/\\.][^:/\\]*:[^:/\\.][^:/\\]*$")
    files: list[str] = Field(min_length=1)
    where: dict[str, str | int | bool] = {}
    src: str = "src"
    dst: str = "dst"
    weight: str = "weight"
    time: str | None = None
    split: str | None = None

    def name(self) -> EdgeTypeName:
        """Return the three names."""
        source, relation, target = self.type.split(":")
        return source, relation, target


class GraphDescription(_Entry):
    """The whole file. Types are numbered in its order, and so are edges, one file after the other."""

    nodes: list[NodeEntry] = Field(min_length=1)
    edges: list[EdgeEntry] = Field(min_length=1)
    undirected: bool | None = None
    add_reverse: bool | None = None
    self_loops: SelfLoops | None = None
    duplicates: Duplicates | None = None
    edge_split: tuple[float, float, float] | None = None
    split: tuple[float, float, float] | None = None

    def rules(self) -> dict[str, Any]:
        """Return what is said of the graph as a whole: what edges stand for, and splits."""
        return self.model_dump(exclude={"nodes", "edges"}, exclude_none=True)


def is_description(location: Path | str) -> bool:
    """Tell whether a location is named like a graph description."""
    return str(location).lower().endswith(SUFFIXES)


def read_description(path: Path) -> GraphFiles:
    """Read a graph description, and open the tables that it names.

    Parameters
    ----------
    path : Path
        Files are named relative to its folder.

    Raises
    ------
    ConfigError
        The file cannot be read, a key or value is not what it must be, a type is named twice, or an edge type
        joins a node type that there is not; the message says the line.
    TableError
        A table cannot be read.
    """
    description = _parse(path)
    names = [entry.type for entry in description.nodes]
    kinds = [entry.name() for entry in description.edges]
    _check_names(path, description)
    return GraphFiles(
        nodes=tuple(_node_files(path, entry) for entry in description.nodes),
        edges=tuple(
            EdgeFiles(
                table=table,
                columns=EdgeColumns(src=entry.src, dst=entry.dst, weight=entry.weight),
                src_type=names.index(kinds[etype][0]),
                dst_type=names.index(kinds[etype][2]),
                etype=etype,
                time=entry.time,
                split=entry.split,
            )
            for etype, entry in enumerate(description.edges)
            for table in _edge_tables(path, entry)
        ),
        node_types=tuple(names),
        edge_types=tuple(kinds),
        where=str(path),
        rules=description.rules(),
    )


def _parse(path: Path) -> GraphDescription:
    try:
        text = path.read_text(encoding="utf-8")
        values, tree = yaml.safe_load(text), yaml.compose(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{path}: must be a YAML file that can be read, got: {reason}; mend it") from error
    try:
        return GraphDescription.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(
            f"{path}: line {_line(tree, first['loc'])}: {where}: {first['msg']}, got {str(first['input'])[:80]!r}; "
            "docs/graph-description.md lists the keys"
        ) from error


def _line(node: Any, location: Sequence[int | str]) -> int:
    """Return the line, from 1, of the key or item at a location, or of the last part of it that is there."""
    line = 1 if node is None else node.start_mark.line + 1
    for step in location:
        found = None
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == step), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            found = node.value[step], node.value[step]
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def _check_names(path: Path, description: GraphDescription) -> None:
    names = [entry.type for entry in description.nodes]
    for what, types in (("node", names), ("edge", [entry.type for entry in description.edges])):
        twice = next((name for name in types if types.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"{path}: {what} types must differ, got {twice} again; put its files in one entry")
    for entry in description.edges:
        source, _, target = entry.name()
        for name in (source, target):
            if name not in names:
                raise ConfigError(
                    f"{path}: edges of {entry.type}: both ends must be of the node types {', '.join(names)}, "
                    f"got {name}; add it to nodes"
                )


def _node_files(path: Path, entry: NodeEntry) -> NodeFiles:
    tables = tuple(_tables(path, entry.files, entry.where))
    for table in tables:
        _require(path, entry.type, table, [entry.id, *entry.feature_columns])
    if entry.features is not None and not tables:
        raise ConfigError(
            f"{path}: nodes of {entry.type}: features must come with files, got none; name the node files"
        )
    return NodeFiles(
        tables=tables,
        columns=NodeColumns(
            id=entry.id, label=entry.label, split=entry.split, ntype="", features=tuple(entry.feature_columns)
        ),
        features=None if entry.features is None else path.parent / entry.features,
    )


def _edge_tables(path: Path, entry: EdgeEntry) -> Iterator[Table]:
    for table in _tables(path, entry.files, entry.where):
        _require(path, entry.type, table, [entry.src, entry.dst, *filter(None, (entry.time, entry.split))])
        yield table


def _tables(path: Path, files: Sequence[str], where: dict[str, Any]) -> Iterator[Table]:
    for file in files:
        table = open_table(file if is_remote(file) else path.parent / file)
        yield FilteredTable(table, where) if where else table


def _require(path: Path, kind: str, table: Table, columns: Sequence[str]) -> None:
    missing = [name for name in columns if name not in table.names]
    if missing:
        raise ConfigError(
            f"{path}: {kind}: {table.name} must have a column '{missing[0]}', got {', '.join(table.names)}; "
            "name it in the description"
        )
