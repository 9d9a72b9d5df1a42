"""`manifest.json`: what a dataset of shards holds, its checksums, and how it was made."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from asepr.contracts import MAX_PARTS, Aggregate
from asepr.errors import ShardError

MANIFEST_NAME = "manifest.json"
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
    files: dict[str, FileEntry]


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
    method: str
    num_classes: int = Field(ge=0)
    feature_width: int = Field(ge=0)
    edge_feature_width: int = Field(ge=0)
    aggregate: Aggregate | None = None
    split_sizes: dict[Literal["train", "val", "test"], int]
    config: dict[str, Any]
    quality: dict[str, Any]
    parts: list[PartEntry]

    def model_post_init(self, context: Any) -> None:
        """Check what one field says of another."""
        del context
        if len(self.parts) != self.num_parts:
            raise ValueError(f"parts must have {self.num_parts} entries, got {len(self.parts)}")
        for rank, part in enumerate(self.parts):
            if part.folder != part_folder(rank):
                raise ValueError(f"parts[{rank}].folder must be {part_folder(rank)}, got {part.folder}")
            for name in part.files:
                if name not in FILE_NAMES:
                    raise ValueError(f"parts[{rank}].files must be among {', '.join(FILE_NAMES)}, got {name!r}")


FILE_NAMES = (
    "nodes.arrow",
    "features.arrow",
    "aggregates.arrow",
    "edges.arrow",
    "edge_features.arrow",
    "send.arrow",
    "peers.arrow",
)
"""Every file a part may have; those of features and aggregates only where there are any."""


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
