"""Whole graphs of many files, one of them damaged: read as a sound graph, or one clear error."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import asepr
from asepr.errors import AseprError
from tests.formats.test_ogb_folders import write as write_gzipped
from tests.graphs import random_graph

TRIES = 60
GRAPH = random_graph(30, 120)
PIECES = [
    b",",
    b"\n",
    b"\r\n",
    b'"',
    b"#",
    b"\xff",
    b"\x00",
    b"\xef\xbb\xbf",
    b"-1",
    b"1.5",
    b"x",
    b"9" * 20,
    b":",
    b"]",
]


def make_described(folder: Path) -> Path:
    """Two node types, two edge types, ids as text, features and a split of edges."""
    folder.mkdir()
    users = "".join(f"u{i},{i % 3},{i / 7:.3f}\n" for i in range(30))
    (folder / "users.csv").write_text("id,label,feat_age\n" + users)
    follows = "".join(f"u{u},u{v},{1 + u % 3}\n" for u, v in zip(GRAPH.src, GRAPH.dst, strict=True))
    (folder / "follows.csv").write_text("src,dst,weight\n" + follows)
    likes = "".join(f"u{u},item {v % 7},{('train', 'val', 'test')[v % 3]}\n" for u, v in enumerate(GRAPH.dst[:30]))
    (folder / "likes.tsv").write_text("src,dst,which\n".replace(",", "\t") + likes.replace(",", "\t"))
    (folder / "graph.yaml").write_text(
        "nodes:\n- {type: user, files: [users.csv]}\n- {type: item}\n"
        "edges:\n- {type: 'user:follows:user', files: [follows.csv]}\n"
        "- type: 'user:likes:item'\n  files: [likes.tsv]\n  split: which\n"
    )
    return folder / "graph.yaml"


def make_ogb(folder: Path) -> Path:
    rng = np.random.default_rng(3)
    raw = folder / "raw"
    write_gzipped(raw / "edge.csv.gz", np.stack([GRAPH.src, GRAPH.dst], axis=1))
    write_gzipped(raw / "num-node-list.csv.gz", [30])
    write_gzipped(raw / "num-edge-list.csv.gz", [GRAPH.num_edges])
    write_gzipped(raw / "node-feat.csv.gz", rng.integers(0, 9, (30, 2)))
    write_gzipped(raw / "node-label.csv.gz", rng.integers(0, 4, 30))
    for rows, name in zip(np.split(rng.permutation(30), [20, 25]), ("train", "valid", "test"), strict=True):
        write_gzipped(folder / "split" / "time" / f"{name}.csv.gz", rows)
    return folder


def make_chunks(folder: Path) -> Path:
    """A chunked DGL graph: edges in text and npy, features in npy."""
    folder.mkdir()
    half = GRAPH.num_edges // 2
    for name, rows in (("a", slice(half)), ("b", slice(half, None))):
        lines = "".join(f"{u} {v}\n" for u, v in zip(GRAPH.src[rows], GRAPH.dst[rows], strict=True))
        (folder / f"{name}.txt").write_text(lines)
    np.save(folder / "feat.npy", np.arange(60, dtype=np.float32).reshape(30, 2))
    np.save(folder / "label.npy", np.arange(30) % 3)
    numpy = {"name": "numpy"}
    metadata = {
        "graph_name": "g",
        "node_type": ["n"],
        "num_nodes_per_chunk": [[30]],
        "edge_type": ["n:e:n"],
        "num_edges_per_chunk": [[half, GRAPH.num_edges - half]],
        "edges": {"n:e:n": {"format": {"name": "csv", "delimiter": " "}, "data": ["a.txt", "b.txt"]}},
        "node_data": {"n": {name: {"format": numpy, "data": [f"{name}.npy"]} for name in ("feat", "label")}},
        "edge_data": {},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


def damage(data: bytes, rng: np.random.Generator) -> bytes:
    """Cut the end off, put something in, leave something out, or flip a bit."""
    place = int(rng.integers(len(data)))
    kind = rng.integers(4)
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + PIECES[rng.integers(len(PIECES))] + data[place:]
    if kind == 2:
        return data[:place] + data[place + 1 + int(rng.integers(5)) :]
    return data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :]


# A damaged header may still be one that numpy takes for an old one, and reads right.
@pytest.mark.filterwarnings("ignore:Reading `.npy`")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("make", [make_described, make_ogb, make_chunks])
def test_a_damaged_file_is_an_error_or_a_sound_graph(make: Callable[[Path], Path], seed: int, tmp_path: Path):
    graph = make(tmp_path / "graph")
    rng = np.random.default_rng(seed)
    files = sorted(path for path in (tmp_path / "graph").rglob("*") if path.is_file())
    is_read, is_refused = 0, 0
    for attempt in range(TRIES):
        path = files[attempt % len(files)]
        whole = path.read_bytes()
        path.write_bytes(damage(whole, rng))
        out = tmp_path / f"out-{attempt}"
        try:
            asepr.partition(graph, out, num_parts=2, method="random")
        except AseprError as error:
            message = str(error)
            assert "\n" not in message
            assert "; " in message, f"no remedy: {message}"
            assert not out.exists()
            is_refused += 1
        else:
            assert asepr.verify(out) == []
            is_read += 1
        path.write_bytes(whole)
    assert is_refused > TRIES / 4, "damage must be noticed where it can be"
    asepr.partition(graph, tmp_path / "whole", num_parts=2, method="random")
