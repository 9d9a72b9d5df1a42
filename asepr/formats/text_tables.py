"""Tables in text: CSV, TSV, and columns split by white space; compressed or not, with a header or without."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from asepr.errors import TableError
from asepr.formats.locations import StoredFile
from asepr.formats.text_lines import BLOCK_BYTES, LINE_BYTES, SPACE, first_open_quote, read_lines

FIRST_LOOK_BYTES = 1 << 16
KINDS = (pa.int64(), pa.float64(), pa.string())
"""Types that a column of text may turn out to have, from narrow to wide."""

_NOT_PLAIN = r"^-?0[0-9]|^-?0[xX]"
"""A parser of integers takes 007 as 7 and 0x10 as 16; as text they are themselves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextLayout:
    """How lines are to be cut into columns.

    Attributes
    ----------
    separator : str
        One character; `SPACE` stands for any run of spaces and tabs, and then quotes mean nothing.
    names : tuple of str
        One a column.
    has_names : bool
        Whether the file says the names.
    skip_lines : int
        Lines, after comments, that hold no row.
    """

    separator: str
    names: tuple[str, ...]
    has_names: bool = False
    skip_lines: int = 0


class TextTable:
    """Text cut into columns; every row has as many fields as the first line.

    An empty field is null. Spaces around a field are not part of it. A quoted field ends on its line.

    Parameters
    ----------
    file : StoredFile
    layout : TextLayout
    types : mapping of str to DataType, optional
        Columns that are parsed as these types; the types of the others are found by reading them through.
    """

    num_nodes = None
    is_text = True

    def __init__(self, file: StoredFile, layout: TextLayout, types: Mapping[str, pa.DataType] | None = None) -> None:
        self.name, self.has_names = file.name, layout.has_names
        self._file = file
        self._layout = layout
        self._types = dict(types or {})

    @property
    def names(self) -> list[str]:
        """Column names, in order; numbers from `0` where the file has none."""
        return list(self._layout.names)

    @property
    def schema(self) -> pa.Schema:
        """Int64, float64 or string: for each column the first that can hold all its values; may take a pass."""
        return self.schema_of(self.names)

    def schema_of(self, columns: Sequence[str]) -> pa.Schema:
        """Return names and types of some columns, found as in `schema`."""
        self._find_types(columns)
        return pa.schema([(name, self._types[name]) for name in columns])

    def read_as(self, types: Mapping[str, pa.DataType]) -> "TextTable":
        """Return the same rows with these columns parsed as these types."""
        return TextTable(self._file, self._layout, self._types | dict(types))

    def num_rows(self) -> None:
        """Return None: lines must be counted."""

    def bounds(self, columns: Sequence[str]) -> None:
        """Return None: the file must be read."""
        del columns

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield parsed runs of lines."""
        schema = self.schema_of(columns)
        for table in self._parsed(dict(zip(schema.names, schema.types, strict=True))):
            yield from table.combine_chunks().to_batches(max_chunksize=batch_rows)

    def _find_types(self, columns: Sequence[str]) -> None:
        """Settle the types of those of the columns that have none."""
        unknown = [name for name in columns if name not in self._types]
        if not unknown:
            return
        found = dict.fromkeys(unknown, KINDS[0])
        for table in self._parsed(dict.fromkeys(unknown, pa.string())):
            for name in unknown:
                found[name] = _narrowest(table.column(name), found[name])
            if set(found.values()) == {KINDS[-1]}:
                break
        self._types |= found

    def _parsed(self, types: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        first_row = 0
        left = self._layout.skip_lines
        for block in read_lines(self._file, self._layout.separator, BLOCK_BYTES):
            while left and block:
                line, _, block = block.partition(b"\n")
                left -= bool(line)
            if block.strip(b"\n"):
                table = parse_lines(self.name, self._layout, block, first_row, types)
                yield table
                first_row += table.num_rows


@dataclass(frozen=True, slots=True)
class _Block:
    """Some whole lines of a file; knows how to say what is wrong with one of them."""

    name: str
    layout: TextLayout
    lines: bytes
    first_row: int

    def parse(self, types: Mapping[str, pa.DataType]) -> pa.Table:
        if self.layout.separator != SPACE:
            self._require_closed_quotes()
        try:
            integers = [name for name, kind in types.items() if pa.types.is_integer(kind)]
            if integers and (b"x" in self.lines or b"X" in self.lines):
                self._require_no_hex(integers)
            return _trimmed(self._read(types))
        except pa.ArrowException as error:
            self._find_fault(types)
            reason = " ".join(str(error).split())
            raise TableError(f"{self.name}: must be a whole text file, got: {reason}; write it again") from error

    def _read(self, types: Mapping[str, pa.DataType], *, use_threads: bool = True) -> pa.Table:
        """Parse with pyarrow; columns go by number, so that names may repeat."""
        numbers = [str(self.layout.names.index(name)) for name in types]
        table = pyarrow.csv.read_csv(
            pa.py_buffer(self.lines),
            pyarrow.csv.ReadOptions(
                column_names=[str(number) for number in range(len(self.layout.names))],
                block_size=LINE_BYTES,
                use_threads=use_threads,
            ),
            pyarrow.csv.ParseOptions(
                delimiter=self.layout.separator, quote_char=False if self.layout.separator == SPACE else '"'
            ),
            pyarrow.csv.ConvertOptions(
                include_columns=numbers,
                column_types=dict(zip(numbers, types.values(), strict=True)),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        return table.rename_columns(list(types))

    def _require_closed_quotes(self) -> None:
        number = first_open_quote(self.lines)
        if number is not None:
            lines = self.lines.split(b"\n")
            row = self.first_row + sum(map(bool, lines[:number]))
            text = lines[number].decode(errors="replace")
            raise TableError(f"{self.name}: row {row}: a quote must be closed on its line, got {text!r}; mend the row")

    def _require_no_hex(self, integers: Sequence[str]) -> None:
        table = self._read(dict.fromkeys(integers, pa.string()))
        for name in integers:
            is_hex = pc.match_substring_regex(table.column(name), "[xX]").fill_null(False)
            if pc.any(is_hex).as_py():
                row = is_hex.index(True).as_py()
                self._fail(row, name, "a whole number below 2**63", table.column(name)[row].as_py())

    def _find_fault(self, types: Mapping[str, pa.DataType]) -> None:
        """Raise for the first line of another length, else for the first value of another type."""
        try:
            # Only one thread counts rows.
            table = self._read(dict.fromkeys(types, pa.binary()), use_threads=False)
        except pa.ArrowException as error:
            found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", str(error), re.DOTALL)
            if found is None:
                return
            number, expected, got, text = found.groups()
            raise TableError(
                f"{self.name}: row {self.first_row + int(number) - 1}: must have {expected} fields as the first line, "
                f"got {got}: {text[:80]!r}; mend the row, or name the right format by the suffix"
            ) from None
        for name, kind in types.items():
            for row, value in enumerate(table.column(name).to_pylist()):
                rule = _broken_rule(value, kind)
                if rule is not None:
                    self._fail(row, name, rule, value.decode(errors="replace"))

    def _fail(self, row: int, name: str, rule: str, value: str) -> NoReturn:
        raise TableError(
            f"{self.name}: row {self.first_row + row}: {name} must be {rule}, got {value[:80]!r}; mend the row"
        )


def parse_lines(
    name: str, layout: TextLayout, lines: bytes, first_row: int, types: Mapping[str, pa.DataType]
) -> pa.Table:
    """Parse lines as `read_lines` yields them.

    Parameters
    ----------
    name : str
        The file, for messages.
    layout : TextLayout
    lines : bytes
    first_row : int
        Number of the first line, for messages.
    types : mapping of str to DataType
        Columns to parse, and as what.

    Raises
    ------
    TableError
        A line has another number of fields, or a value is not of its type.
    """
    return _Block(name, layout, lines, first_row).parse(types)


def open_text(file: StoredFile, separator: str, *, has_header: bool | None = None) -> TextTable:
    """Open a text file.

    Parameters
    ----------
    file : StoredFile
    separator : str
        One character; `SPACE` stands for any run of spaces and tabs.
    has_header : bool or None
        Whether the first line that is no comment holds names; None: unless all its fields are numbers.

    Raises
    ------
    TableError
        There are only comments or blank lines, or the first line is not UTF-8.
    """
    line = first_line(file, separator)
    fields = line.split(SPACE) if separator == SPACE else next(csv.reader([line], delimiter=separator))
    fields = [text.strip() for text in fields]
    if has_header is None:
        has_header = not all(_is_number(text) for text in fields)
    names = fields if has_header else [str(number) for number in range(len(fields))]
    return TextTable(
        file,
        TextLayout(separator=separator, names=tuple(names), has_names=has_header, skip_lines=int(has_header)),
    )


def first_line(file: StoredFile, separator: str) -> str:
    """Return the first line that is neither a comment nor blank.

    Raises
    ------
    TableError
        There is none, or it is not UTF-8.
    """
    for block in read_lines(file, separator, FIRST_LOOK_BYTES):
        line = block.lstrip(b"\n").partition(b"\n")[0]
        if line:
            try:
                return line.decode()
            except UnicodeDecodeError:
                raise TableError(
                    f"{file.name}: must be UTF-8 text, got {line[:40]!r} first; convert it with iconv"
                ) from None
    raise TableError(f"{file.name}: must hold rows, got only comments or blank lines; write it again")


def _narrowest(column: pa.ChunkedArray, kind: pa.DataType) -> pa.DataType:
    """Return `kind` if all the text can be of it, else the first wider type that fits."""
    return next(wider for wider in KINDS[KINDS.index(kind) :] if fits(column, wider))


def fits(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> bool:
    """Tell whether all text of a column is of a type; an integer is one only if its text could be no other."""
    if pa.types.is_string(kind):
        return True
    if pc.any(pc.match_substring_regex(column, _NOT_PLAIN)).as_py():
        return False
    try:
        pc.cast(column, kind)
    except pa.ArrowException:
        return False
    return True


def _trimmed(table: pa.Table) -> pa.Table:
    for number, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(number, field.name, pc.utf8_trim_whitespace(table.column(number)))
    return table


def _broken_rule(value: bytes | None, kind: pa.DataType) -> str | None:
    """Return what the value would have to be to fit the type, None where it fits."""
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "UTF-8 text"
    if pa.types.is_integer(kind):
        is_small = re.fullmatch(r"\s*-?[0-9]+\s*", text) and abs(int(text)) < 2**63
        return None if is_small else "a whole number below 2**63"
    if pa.types.is_floating(kind):
        return None if _is_number(text) else "a number"
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
