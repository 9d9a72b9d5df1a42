"""A first draft of `graph.yaml` for files that somebody has."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from asepr.errors import AseprError, ConfigError
from asepr.formats.graph_description import read_description
from asepr.formats.ids import BATCH_ROWS
from asepr.formats.node_sources import NodeColumns, open_features
from asepr.formats.tables import Table, open_table, schema_of

ENDS = (("src", "dst"), ("source", "target"), ("from", "to"), ("head", "tail"), ("u", "v"), ("0", "1"))
IDS = ("id", "nid", "node_id", "node", "name", "key")
LABELS, SPLITS = ("label", "y", "class"), ("split", "set")
WEIGHTS, TIMES = ("weight", "w"), ("time", "timestamp", "date", "day", "year")
TYPES = ("etype", "ntype", "type", "relation", "kind")
MAX_TYPES = 100
"""A column of more values is taken for no column of types."""


@dataclass(kw_only=True, slots=True)
class Draft:
    """What was guessed.

    Attributes
    ----------
    nodes, edges : list of dict
        Entries of the description.
    notes : list of str
        What was guessed, and what else it could be.
    """

    nodes: list[dict[str, Any]] = field(default_factory=list)
    edges: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return what `asepr describe --json` prints."""
        return {"nodes": self.nodes, "edges": self.edges, "notes": self.notes}

    def to_yaml(self) -> str:
        """Return the description, guesses as comments on top."""
        notes = "".join(f"# {note}\n" for note in self.notes)
        # Copies, so that YAML does not refer from one entry to another.
        entries = {
            what: [{key: list(v) if isinstance(v, list) else v for key, v in entry.items()} for entry in rows]
            for what, rows in (("nodes", self.nodes), ("edges", self.edges))
        }
        listed = str(yaml.safe_dump(entries, sort_keys=False, width=110))
        return f"# A draft: check it, and rename the types.\n{notes}{listed}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    tables: list[tuple[Path, Table]]
    features: list[Path]
    names: dict[str, list[str]]


def describe(paths: Sequence[Path], target: Path | None = None) -> Draft:
    """Guess from names and types of columns which files are nodes and edges, of which types.

    Parameters
    ----------
    paths : sequence of Path
        Files, or folders whose files are looked at.
    target : Path, optional
        Where to write the draft; it must not exist. The draft is loaded as a check.

    Raises
    ------
    ConfigError
        No file holds edges; `target` exists.
    TableError
        A file is damaged.
    """
    if target is not None and target.exists():
        raise ConfigError(f"{target}: must not exist, got a file; choose another -o, or remove it")
    draft = Draft()
    found = _look(paths, draft)
    base = (target.parent if target is not None else Path()).absolute()
    edges = [(path, table) for path, table in found.tables if _ends(table) is not None]
    nodes = [(path, table) for path, table in found.tables if _ends(table) is None and _first(table, IDS)]
    for path, _ in found.tables:
        if path not in {path for path, _ in [*edges, *nodes]}:
            draft.notes.append(f"left out: {path.name} has no column of ids ({', '.join(IDS)})")
    if not edges:
        listed = ", ".join(path.name for path, _ in found.tables) or "no table"
        raise ConfigError(
            f"{', '.join(map(str, paths))}: must hold a table with two columns of ends, as src and dst, got {listed}; "
            "rename the columns"
        )
    types = _NodeTypes(base, nodes, found, draft)
    for path, table in edges:
        _add_edges(base, path, table, types, found.names.get("edge_types", []), draft)
    _name_apart(draft)
    if target is not None:
        target.write_text(draft.to_yaml(), encoding="utf-8")
        try:
            read_description(target)
        except AseprError:
            target.unlink()
            raise
    return draft


def _look(paths: Sequence[Path], draft: Draft) -> _Found:
    files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    found = _Found(tables=[], features=[], names={})
    for file in files:
        if file not in paths and (file.name.startswith((".", "_")) or not file.is_file()):
            continue
        if file.suffix == ".json":
            found.names.update(_names_in(file))
            continue
        if _is_feature_file(file):
            found.features.append(file)
            continue
        try:
            found.tables.append((file, open_table(file)))
        except AseprError as error:
            if file in paths:
                raise
            draft.notes.append(f"left out: {error}")
    return found


def _names_in(file: Path) -> dict[str, list[str]]:
    """Return lists of names of types that a JSON file beside the tables holds."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    lists = {key: values.get(key) for key in ("node_types", "edge_types")} if isinstance(values, dict) else {}
    return {key: names for key, names in lists.items() if names and all(isinstance(name, str) for name in names)}


def _is_feature_file(file: Path) -> bool:
    if file.suffix not in (".npy", ".npz"):
        return False
    try:
        source = open_features(file)
    except AseprError:
        return False
    return source.width != 2 or source.num_rows == 2


class _NodeTypes:
    """Entries of node types, and the type of each id where ids are in node files."""

    def __init__(self, base: Path, nodes: Sequence[tuple[Path, Table]], found: _Found, draft: Draft) -> None:
        self._ids: list[tuple[str, pa.Array]] = []
        for path, table in nodes:
            self._add(base, path, table, found, draft)
        if not nodes:
            draft.nodes.append({"type": "node"})
            draft.notes.append("no node files: nodes are those in edges")

    def of(self, ids: pa.Array) -> list[str | None]:
        """Return the type of each id; None where no node file has it."""
        if not self._ids:
            return ["node"] * len(ids)
        found: list[str | None] = [None] * len(ids)
        for name, known in self._ids:
            for row in np.flatnonzero(pc.is_in(ids.cast(pa.string()), known).to_numpy(zero_copy_only=False)):
                found[row] = name
        return found

    def _add(self, base: Path, path: Path, table: Table, found: _Found, draft: Draft) -> None:
        entry: dict[str, Any] = {"type": path.stem.split(".")[0], "files": [_relative(path, base)]}
        entry["id"] = _first(table, IDS)
        for key, known in (("label", LABELS), ("split", SPLITS)):
            name = _first(table, known)
            if name is not None:
                entry[key] = name
        others = [
            n for n in table.names if n not in entry.values() and n not in NodeColumns().feature_names(table.names)
        ]
        kind = next((name for name in TYPES if name in others), None)
        if others and others != [kind]:
            draft.notes.append(f"{path.name}: not used: {', '.join(n for n in others if n != kind)} (feature_columns?)")
        rows = pa.Table.from_batches(table.batches([entry["id"], *([kind] if kind else [])], BATCH_ROWS))
        values = _type_values(rows, kind)
        names = _type_names(values, found.names.get("node_types", []), entry["type"])
        features = [f for f in found.features if open_features(f).num_rows == rows.num_rows]
        for value, name in zip(values, names, strict=True):
            chosen = np.arange(rows.num_rows)
            own = entry | {"type": name}
            if kind is not None and len(values) > 1:
                own["where"] = {kind: value}
                mask = pc.fill_null(pc.equal(rows.column(kind), pa.scalar(value, rows.column(kind).type)), False)
                chosen = np.flatnonzero(mask.to_numpy())
            if features and np.any(open_features(features[0]).read(chosen)):
                own["features"] = _relative(features[0], base)
            self._ids.append((name, rows.column(entry["id"]).take(chosen).cast(pa.string()).combine_chunks()))
            draft.nodes.append(own)
        if len(features) > 1:
            draft.notes.append(f"features could be any of {', '.join(f.name for f in features)}")


def _add_edges(base: Path, path: Path, table: Table, types: _NodeTypes, names: Sequence[str], draft: Draft) -> None:
    ends = _ends(table)
    assert ends is not None  # the caller chose the table by them
    entry: dict[str, Any] = {"type": "", "files": [_relative(path, base)], "src": ends[0], "dst": ends[1]}
    for key, known in (("weight", WEIGHTS), ("time", TIMES)):
        name = _first(table, known)
        if name is not None:
            entry[key] = name
    kind = _first(table, TYPES)
    rows = pa.Table.from_batches(
        table.batches([*ends, *([kind] if kind else [])], BATCH_ROWS), _schema(table, ends, kind)
    )
    values = _type_values(rows, kind)
    for value, relation in zip(values, _type_names(values, names, path.stem.split(".")[0]), strict=True):
        own, chosen = dict(entry), rows
        if kind is not None and len(values) > 1:
            own["where"] = {kind: value}
            chosen = rows.filter(pc.equal(rows.column(kind), pa.scalar(value, rows.column(kind).type)))
        source, target = (_one_type(path, relation, end, chosen.column(end), types) for end in ends)
        draft.edges.append(own | {"type": f"{source}:{relation}:{target}"})


def _schema(table: Table, ends: tuple[str, str], kind: str | None) -> pa.Schema:
    return schema_of(table, [*ends, *([kind] if kind else [])])


def _one_type(path: Path, relation: str, end: str, ids: pa.ChunkedArray, types: _NodeTypes) -> str:
    found = {name for name in types.of(ids.unique()) if name is not None}
    if len(found) != 1:
        raise ConfigError(
            f"{path}: edges of {relation} must have ids of one node type in {end}, got "
            f"{', '.join(sorted(found)) or 'ids of no node file'}; split the relation, or leave the node types out"
        )
    return found.pop()


def _type_values(rows: pa.Table, kind: str | None) -> list[Any]:
    if kind is None:
        return [None]
    values = sorted(value for value in rows.column(kind).unique().to_pylist() if value is not None)
    return values if 0 < len(values) <= MAX_TYPES and isinstance(values[0], int | str) else [None]


def _type_names(values: Sequence[Any], names: Sequence[str], single: str) -> list[str]:
    if len(values) == 1:
        return [single]
    is_code = all(isinstance(value, int) and 0 <= value < len(names) for value in values)
    texts = [names[value] if is_code else f"type_{value}" if isinstance(value, int) else str(value) for value in values]
    return ["".join("_" if sign in ":/\\" else sign for sign in text).lstrip(".") or "type" for text in texts]


def _name_apart(draft: Draft) -> None:
    """Number types that came out with the same name."""
    for entries in (draft.nodes, draft.edges):
        seen: dict[str, int] = {}
        for entry in entries:
            count = seen[entry["type"]] = seen.get(entry["type"], 0) + 1
            if count > 1:
                source, *rest = entry["type"].split(":")
                entry["type"] = ":".join([source, f"{rest[0]}_{count}", rest[1]]) if rest else f"{source}_{count}"


def _first(table: Table, known: Sequence[str]) -> str | None:
    lower = {name.lower(): name for name in reversed(table.names)}
    return next((lower[name] for name in known if name in lower), None)


def _ends(table: Table) -> tuple[str, str] | None:
    lower = {name.lower(): name for name in reversed(table.names)}
    return next(((lower[a], lower[b]) for a, b in ENDS if a in lower and b in lower), None)


def _relative(path: Path, base: Path) -> str:
    return os.path.relpath(path.absolute(), base)
