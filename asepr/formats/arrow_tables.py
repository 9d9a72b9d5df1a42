"""Tables that Arrow stores: Parquet, and Arrow IPC (Feather version 2)."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from asepr.formats.locations import StoredFile


class ParquetTable:
    """One Parquet file. Only the columns asked for are read, page by page."""

    has_names = True
    is_text = False
    num_nodes = None

    def __init__(self, file: StoredFile) -> None:
        self.name = file.name
        self._file = file
        with file.must_be_whole("Parquet"), file.open() as source, pq.ParquetFile(source) as parquet:
            self.schema: pa.Schema = parquet.schema_arrow.remove_metadata()
            self._metadata = parquet.metadata

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return list(self.schema.names)

    def num_rows(self) -> int:
        """Return the number of rows."""
        return int(self._metadata.num_rows)

    def bounds(self, columns: Sequence[str]) -> tuple[int, int] | None:
        """Return what the statistics of the row groups say, if each has them."""
        bounds: list[tuple[int, int]] = []
        for group in range(self._metadata.num_row_groups):
            for column in map(self._metadata.row_group(group).column, range(self._metadata.num_columns)):
                if column.path_in_schema not in columns:
                    continue
                statistics = column.statistics
                if statistics is None or not statistics.has_min_max or statistics.null_count != 0:
                    return None
                bounds.append((int(statistics.min), int(statistics.max)))
        return (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield one batch a `batch_rows` rows or rest of a row group."""
        # Without pre-buffering a row group is read page by page, not held as a whole.
        with (
            self._file.must_be_whole("Parquet"),
            self._file.open() as source,
            pq.ParquetFile(source, pre_buffer=not self._file.is_local) as parquet,
        ):
            for batch in parquet.iter_batches(batch_size=batch_rows, columns=list(columns)):
                yield batch.select(list(columns))


class IpcTable:
    """One Arrow IPC file, mapped where it is local; a compressed record batch is held whole."""

    has_names = True
    is_text = False
    num_nodes = None

    def __init__(self, file: StoredFile) -> None:
        self.name = file.name
        self._file = file
        with self._file.must_be_whole("Arrow IPC"), self._open() as source:
            self.schema: pa.Schema = pa.ipc.open_file(source).schema.remove_metadata()

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return list(self.schema.names)

    def num_rows(self) -> None:
        """Return None: the number is in the record batches, not in the footer."""

    def bounds(self, columns: Sequence[str]) -> None:
        """Return None: there are no statistics."""
        del columns

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches, cut to at most `batch_rows` rows."""
        with self._file.must_be_whole("Arrow IPC"), self._open() as source:
            options = pa.ipc.IpcReadOptions(included_fields=[self.schema.get_field_index(name) for name in columns])
            reader = pa.ipc.open_file(source, options=options)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number).select(list(columns))
                batch.validate(full=True)  # offsets that point outside would end the process
                for start in range(0, batch.num_rows, batch_rows):
                    yield batch.slice(start, batch_rows)

    def _open(self) -> pa.NativeFile:
        return pa.memory_map(self._file.path) if self._file.is_local else self._file.open()
