"""Tables behind s3://, from a real server that speaks S3."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import asepr
from asepr.errors import TableError
from asepr.formats.edge_readers import EdgeColumns
from asepr.formats.edge_sources import open_edge_source
from tests.graphs import random_graph

GRAPH = random_graph(60, 400)
TABLE = pa.table({"src": GRAPH.src, "dst": GRAPH.dst})


@pytest.fixture(scope="module")
def query() -> Iterator[str]:
    """Fill a bucket of a server on a free port; yield the part of a URI that leads there."""
    moto = pytest.importorskip("moto.server", reason="moto's S3 server is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    query = f"?scheme=http&region=us-east-1&endpoint_override={host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("NO_PROXY", "127.0.0.1")
        _fill(f"{host}:{port}")
        yield query
    server.stop()


def _fill(endpoint: str) -> None:
    store = pyarrow.fs.S3FileSystem(
        endpoint_override=endpoint, scheme="http", region="us-east-1", allow_bucket_creation=True
    )
    store.create_dir("graphs")
    with store.open_output_stream("graphs/e.parquet") as sink:
        pq.write_table(TABLE, sink, row_group_size=50)
    with store.open_output_stream("graphs/e.feather") as sink, pa.ipc.new_file(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=50)
    for name in ("graphs/e.csv", "graphs/e.csv.gz"):
        with store.open_output_stream(name, compression="detect") as sink:
            sink.write(
                ("src,dst\n" + "".join(f"{u},{v}\n" for u, v in zip(GRAPH.src, GRAPH.dst, strict=True))).encode()
            )
    with store.open_output_stream("graphs/e.npy") as sink:
        np.save(sink, np.stack([GRAPH.src, GRAPH.dst]))
    for part in range(2):
        with store.open_output_stream(f"graphs/many/part={part}/e.parquet") as sink:
            pq.write_table(TABLE.slice(230 * part, 230), sink)
    with store.open_output_stream("graphs/cut.parquet") as sink:
        sink.write(b"PAR1" + b"\0" * 40)


@pytest.mark.parametrize("name", ["e.parquet", "e.feather", "e.csv", "e.csv.gz", "e.npy", "many", "many/*/*.parquet"])
def test_tables_behind_s3(name: str, query: str):
    source = open_edge_source(f"s3://graphs/{name}{query}", EdgeColumns(), chunk_edges=100)
    chunks = list(source)
    assert np.concatenate([chunk.src for chunk in chunks]).tolist() == GRAPH.src.tolist()
    assert np.concatenate([chunk.dst for chunk in chunks]).tolist() == GRAPH.dst.tolist()


def test_shards_are_those_of_the_local_file(query: str, tmp_path):
    pq.write_table(TABLE, tmp_path / "e.parquet")
    asepr.partition(tmp_path / "e.parquet", tmp_path / "here", num_parts=2, method="random")
    asepr.partition(f"s3://graphs/e.parquet{query}", tmp_path / "there", num_parts=2, method="random")
    here, there = (
        {f.relative_to(tmp_path / side): f.read_bytes() for f in (tmp_path / side).rglob("*.arrow")}
        for side in ("here", "there")
    )
    assert here == there
    assert here


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.parquet", "s3://graphs/none.parquet: must be a file, got nothing there"),
        ("cut.parquet", "s3://graphs/cut.parquet: must be a whole Parquet file"),
    ],
)
def test_bad_remote_input_is_one_line(name: str, message: str, query: str):
    with pytest.raises(TableError, match=message) as caught:
        open_edge_source(f"s3://graphs/{name}{query}", EdgeColumns())
    assert "\n" not in str(caught.value)


def test_unknown_scheme():
    with pytest.raises(TableError, match=r"must be a path, s3:// or gs://, got scheme 'ftp'"):
        open_edge_source("ftp://host/e.parquet", EdgeColumns())
