"""Text as blocks of whole lines in one plain form: line feeds at the ends, no comments, fields one separator apart."""

import re
from collections.abc import Iterator

import numpy as np

from asepr.errors import TableError
from asepr.formats.locations import StoredFile

BLOCK_BYTES = 1 << 20
LINE_BYTES = 1 << 22
"""Longest line; a file without line ends is not read into memory as a whole."""

SPACE = " "
"""The separator that stands for any run of spaces and tabs."""

_BOM = b"\xef\xbb\xbf"
_COMMENT = re.compile(rb"^[#%][^\n]*\n", re.MULTILINE)


def read_lines(
    file: StoredFile, separator: str, block_bytes: int = BLOCK_BYTES, line_bytes: int = LINE_BYTES
) -> Iterator[bytes]:
    """Yield the file's lines, comment lines left out, in blocks of whole lines.

    Parameters
    ----------
    file : StoredFile
        Compressed or not, as its suffix says.
    separator : str
        `SPACE`: runs of spaces and tabs become one space, and vanish at both ends of a line.
    block_bytes : int
        About how much to read at a time.
    line_bytes : int
        The longest line to be held.

    Raises
    ------
    TableError
        The file is cut short, or a line is longer than `line_bytes`.

    Notes
    -----
    A comment is a line that starts with `#` or `%`; a sign further on is part of a field.
    """
    for block in _whole_lines(file, block_bytes, line_bytes):
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if separator == SPACE:
            block = _squeeze(block)
        elif b'"' in block:
            # A quote that opens a field stands right behind the separator.
            block = re.sub(rb"(%b) +\"" % re.escape(separator.encode()), rb'\1"', block)
        if b"#" in block or b"%" in block:
            block = _COMMENT.sub(b"", block)
        yield block


def first_open_quote(block: bytes) -> int | None:
    """Return the number of the first line with an odd number of quotes, None where there is none."""
    if b'"' not in block:
        return None
    signs = np.frombuffer(block, dtype=np.uint8)
    quotes = np.flatnonzero(signs == ord('"'))
    ends = np.flatnonzero(signs == ord("\n"))
    open_lines = np.flatnonzero(np.diff(np.searchsorted(quotes, ends), prepend=0) % 2)
    return int(open_lines[0]) if len(open_lines) else None


def _whole_lines(file: StoredFile, block_bytes: int, line_bytes: int) -> Iterator[bytes]:
    held, is_first = b"", True
    with file.must_be_whole("text"), file.open_stream() as stream:
        while data := stream.read(block_bytes):
            data = held + (data.removeprefix(_BOM) if is_first else data)
            is_first = False
            # Old files end lines with a lone `\r`; the last byte may be the first half of `\r\n`.
            cut = data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, len(data) - 1) + 1
            held = data[cut:]
            if len(held) > line_bytes:
                raise TableError(
                    f"{file.name}: lines must be shorter than {line_bytes} bytes, got a longer one; "
                    "name the right format by the suffix"
                )
            if cut:
                yield data[:cut]
    if held:
        yield held if held.endswith((b"\n", b"\r")) else held + b"\n"


def _squeeze(block: bytes) -> bytes:
    block = block.replace(b"\t", b" ")
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    return block.replace(b"\n ", b"\n").replace(b" \n", b"\n").removeprefix(b" ")
