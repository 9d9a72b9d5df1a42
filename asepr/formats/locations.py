"""Where tables lie: one file, a folder, a glob, here or behind `s3://` and `gs://`; as a list of files to open."""

import fnmatch
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs

from asepr.errors import TableError

DAMAGE = (
    *(OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error),
    *(SyntaxError, tokenize.TokenError),
)
"""What numpy and scipy raise where a file is damaged; the last two where its header, a Python literal, is."""

REMOTE_SCHEMES = ("s3", "gs", "gcs")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and those who write like it call a folder whose partition column is null."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile:
    """One file on some filesystem.

    Attributes
    ----------
    name : str
        How messages call it: its path or URI.
    filesystem : pyarrow.fs.FileSystem
    path : str
        The file's path on that filesystem.
    size : int, in bytes
    partition : dict of str to (str or None)
        Values of columns that the names of its folders state, as in `year=2020/edges.parquet`.
    """

    name: str
    filesystem: pa.fs.FileSystem
    path: str
    size: int
    partition: dict[str, str | None] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether the file can be mapped."""
        return isinstance(self.filesystem, pa.fs.LocalFileSystem)

    @property
    def suffixes(self) -> list[str]:
        """Suffixes in lower case, as `['.csv', '.gz']`."""
        return [suffix.lower() for suffix in Path(self.path).suffixes]

    def open(self) -> pa.NativeFile:
        """Return the file, open for reading anywhere in it."""
        return self.filesystem.open_input_file(self.path)

    def open_stream(self) -> pa.NativeFile:
        """Return the file's content from the start, decompressed where the suffix says so."""
        return self.filesystem.open_input_stream(self.path, compression="detect")

    @contextmanager
    def must_be_whole(self, kind: str) -> Iterator[None]:
        """Turn what a library says of a damaged file into one error.

        Raises
        ------
        TableError
            The block raised an error of Arrow, of the system, or about a value.
        """
        try:
            yield
        except (pa.ArrowException, *DAMAGE) as error:
            reason = " ".join(str(error).split())
            raise TableError(f"{self.name}: must be a whole {kind} file, got: {reason}; write it again") from error


def find_files(location: Path | str) -> list[StoredFile]:
    """List the files of a location, sorted by path.

    Parameters
    ----------
    location : path or str
        A file; a folder, with all files below it whose names and folders start with neither `_` nor `.`; a glob
        (`edges/*.parquet`, `**` for folders at any depth); each also as `s3://` or `gs://` URI, whose query may
        hold what pyarrow's filesystems take, as `?region=...&endpoint_override=...`.

    Raises
    ------
    TableError
        Nothing is there, or it cannot be reached.
    """
    text = os.fspath(location)
    scheme, colon, _ = text.partition("://")
    if colon and scheme not in (*REMOTE_SCHEMES, "file"):
        raise TableError(f"{text}: must be a path, s3:// or gs://, got scheme '{scheme}'; copy the data there")
    with _within_reach(text.partition("?")[0] if colon else text):
        # Of a URI, the part behind `?` says how to reach it, so `?` is no wildcard there.
        filesystem, path = pa.fs.FileSystem.from_uri(text) if colon else (pa.fs.LocalFileSystem(), text)
        prefix = f"{scheme}://" if is_remote(text) else ""
        infos = sorted(_list(filesystem, path), key=lambda info: str(info.path))
    if not infos:
        raise TableError(f"{prefix}{path}: must be a file, got nothing there; check the path")
    return [
        StoredFile(
            name=prefix + info.path,
            filesystem=filesystem,
            path=info.path,
            size=info.size,
            partition=_partition(Path(info.path).parts[:-1]),
        )
        for info in infos
    ]


def is_remote(location: Path | str) -> bool:
    """Tell whether a location lies behind a URI of another machine."""
    scheme, colon, _ = os.fspath(location).partition("://")
    return bool(colon) and scheme in REMOTE_SCHEMES


@contextmanager
def _within_reach(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise TableError(f"{name}: must be within reach, got: {reason}; check address, rights and region") from error


def _list(filesystem: pa.fs.FileSystem, path: str) -> Iterator[pa.fs.FileInfo]:
    """Yield the files that the path names: itself, all below it, or all that it matches as a glob."""
    info = filesystem.get_file_info(path)
    if info.type == pa.fs.FileType.File:
        yield info
        return
    wanted = path.rstrip("/").split("/")
    if info.type == pa.fs.FileType.NotFound:
        fixed = next((i for i, part in enumerate(wanted) if any(sign in part for sign in "*?[")), None)
        if fixed is None:
            return
    else:
        fixed = len(wanted)
    root = "/".join(wanted[:fixed]) or ("/" if path.startswith("/") else ".")
    for info in filesystem.get_file_info(pa.fs.FileSelector(root, recursive=True, allow_not_found=True)):
        below = info.path.removeprefix(root).lstrip("/").split("/")
        if info.type == pa.fs.FileType.File and _matches(below, wanted[fixed:]):
            yield info


def _matches(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Tell whether a path, cut at slashes, is matched, or lies in a folder that is, and nothing of it is hidden."""
    if not patterns:
        return not any(part.startswith(("_", ".")) for part in parts)
    if not parts:
        return False
    if patterns[0] == "**":
        return _matches(parts, patterns[1:]) or (not parts[0].startswith(("_", ".")) and _matches(parts[1:], patterns))
    return fnmatch.fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])


def _partition(folders: Sequence[str]) -> dict[str, str | None]:
    named = [folder.split("=", 1) for folder in folders if "=" in folder.strip("=")]
    return {unquote(name): None if value == NO_VALUE else unquote(value) for name, value in named}
