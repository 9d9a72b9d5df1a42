"""`manifest.json`: what a dataset of shards holds, its checksums, and how it was made."""

import hashlib
import json
import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from asepr.contracts import MAX_PARTS, Aggregate
from asepr.errors import ShardError

MANIFEST_NAME = "manifest.json"
MAP_FOLDER = "ids"
FORMAT_VERSION: Final = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Record):
    """One file of a part: its size in bytes and its SHA-256."""

    num_bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class PartEntry(_Record):
    """One part: its folder below the manifest, its sizes and its files."""

    folder: str = Field(pattern="^part-[0-9]{5}$")
    num_inner: int = Field(ge=0)
    num_halo: int = Field(ge=0)
    num_edges: int = Field(ge=0)
    num_outer_edges: int = Field(default=0, ge=0)
    files: dict[str, FileEntry]


class IdMapEntry(_Record):
    """The map of one node type below `ids/`: row i is the id of node `node_type_offsets[type] + i`."""

    name: str = Field(pattern=r"^[0-9]{5}\.parquet$")
    num_bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(_Record):
    """The whole dataset. Field names are the keys of the JSON file.

    `folder` and file names are matched against fixed patterns on reading, so that no path made
    from a manifest can leave its own folder.
    """

    format: Literal["asepr-shards"] = "asepr-shards"
    version: Literal[1] = FORMAT_VERSION
    num_nodes: int = Field(ge=1)
    num_edges: int = Field(ge=0)
    num_parts: int = Field(ge=1, le=MAX_PARTS)
    layout: Literal["vertex-cut", "edge-cut"]
    halo_hops: int = Field(default=1, ge=1)
    method: str
    num_classes: int = Field(ge=0)
    feature_width: int = Field(ge=0)
    edge_feature_width: int = Field(ge=0)
    aggregate: Aggregate | None = None
    split_sizes: dict[Literal["train", "val", "test"], int]
    config: dict[str, Any]
    quality: dict[str, Any]
    parts: list[PartEntry]
    node_types: list[str] = []
    edge_types: list[tuple[str, str, str]] = []
    node_type_offsets: list[int] = []
    node_feature_widths: list[int] = []
    id_maps: list[IdMapEntry] = []
    held_out_sizes: dict[Literal["valid", "test"], int] = {}
    leaking_edges: int = Field(default=0, ge=0)

    def model_post_init(self, context: Any) -> None:
        """Check what one field says of another."""
        del context
        if len(self.parts) != self.num_parts:
            raise ValueError(f"parts must have {self.num_parts} entries, got {len(self.parts)}")
        for rank, part in enumerate(self.parts):
            if part.folder != part_folder(rank):
                raise ValueError(f"parts[{rank}].folder must be {part_folder(rank)}, got {part.folder}")
            for name in part.files:
                if name not in FILE_NAMES and not _BY_TYPE.fullmatch(name):
                    raise ValueError(f"parts[{rank}].files must be among {', '.join(FILE_NAMES)}, got {name!r}")
        self._check_types()

    def _check_types(self) -> None:
        types = len(self.node_types)
        offsets = self.node_type_offsets
        if types and (
            len(offsets) != types + 1
            or offsets[0] != 0
            or offsets[-1] != self.num_nodes
            or any(a > b for a, b in pairwise(offsets))
        ):
            raise ValueError(f"node_type_offsets must ascend from 0 to {self.num_nodes} by type, got {offsets}")
        if len(set(self.node_types)) != types:
            raise ValueError(f"node_types must differ from one another, got {self.node_types}")
        if self.node_feature_widths and len(self.node_feature_widths) != types:
            raise ValueError(f"node_feature_widths must be one a node type, got {self.node_feature_widths}")
        if self.id_maps and [entry.name for entry in self.id_maps] != [map_file(t) for t in range(max(types, 1))]:
            raise ValueError(f"id_maps must be one a node type, got {[entry.name for entry in self.id_maps]}")
        for source, _, target in self.edge_types:
            if types and not {source, target} <= set(self.node_types):
                raise ValueError(f"edge_types must join node types, got {source} and {target}")


FILE_NAMES = (
    "nodes.arrow",
    "features.arrow",
    "aggregates.arrow",
    "edges.arrow",
    "edge_features.arrow",
    "outer_edges.arrow",
    "held_out.arrow",
    "send.arrow",
    "peers.arrow",
)
"""Every file a part may have, beside `features-TTTTT.arrow` and `ids-TTTTT.parquet`, one a node type."""

_BY_TYPE = re.compile(r"features-[0-9]{5}\.arrow|ids-[0-9]{5}\.parquet")


def id_file(ntype: int) -> str:
    """Return the name of a part's file of the ids of one node type."""
    return f"ids-{ntype:05d}.parquet"


def feature_file(ntype: int) -> str:
    """Return the name of a part's file of the features of one node type."""
    return f"features-{ntype:05d}.arrow"


def map_file(ntype: int) -> str:
    """Return the name of the map of one node type, below `ids/`."""
    return f"{ntype:05d}.parquet"


def id_map_entry(path: Path) -> IdMapEntry:
    """Return name, size and checksum of a map."""
    entry = file_entry(path)
    return IdMapEntry(name=path.name, num_bytes=entry.num_bytes, sha256=entry.sha256)


def part_folder(rank: int) -> str:
    """Return the name of a part's folder."""
    return f"part-{rank:05d}"


def read_manifest(folder: Path) -> Manifest:
    """Read and check `manifest.json` in a dataset folder.

    Raises
    ------
    ShardError
        There is none, it is no JSON, or a field is not what it must be.
    """
    path = folder / MANIFEST_NAME
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ShardError(
            f"{path}: must be the manifest of a finished dataset, got: {error.strerror}; check the folder, "
            "or partition again if the run was stopped"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ShardError(
            f"{path}: {where}: {first['msg']}, got {str(first['input'])[:80]!r}; "
            "copy the manifest again, or partition again"
        ) from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest under another name, make it durable, then rename it into place."""
    path, unfinished = folder / MANIFEST_NAME, folder / f".{MANIFEST_NAME}"
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(manifest.model_dump(), file, indent=1, sort_keys=True, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)


def file_entry(path: Path) -> FileEntry:
    """Return size and checksum of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileEntry(num_bytes=path.stat().st_size, sha256=digest)
