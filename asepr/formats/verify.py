"""Every checksum, and every invariant that shards must keep, checked from the files alone."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from asepr.errors import ShardError
from asepr.formats.arrow_io import Columns
from asepr.formats.leaks import count_leaking
from asepr.formats.manifest import MAP_FOLDER, FileEntry, IdMapEntry, file_entry, id_file, read_manifest
from asepr.formats.shard import HELD_OUT_SPLITS, Shard, id_batches, open_all

BLOCK_EDGES = 1 << 20
ENDS = ("src", "dst")


def find_faults(folder: Path) -> list[str]:
    """Return a line for each thing that is wrong with a dataset; none: it is whole and consistent.

    Files are checked first; what they say is looked at only where all of them are whole.

    Raises
    ------
    ShardError
        There is no manifest, or it cannot be read.
    """
    faults = list(_file_faults(folder))
    if faults:
        return faults
    shards = open_all(folder, Shard)
    try:
        for shard in shards:
            faults += _part_faults(shard)
        return faults or [
            *_node_faults(shards),
            *_edge_faults(shards),
            *_hop_faults(shards),
            *_exchange_faults(shards),
            *_id_faults(folder, shards),
            *_held_out_faults(shards),
        ]
    except ShardError as error:
        return [*faults, str(error)]


def _file_faults(folder: Path) -> Iterator[str]:
    manifest = read_manifest(folder)
    listed: list[tuple[Path, FileEntry | IdMapEntry]] = [
        (folder / part.folder / name, entry) for part in manifest.parts for name, entry in part.files.items()
    ]
    listed += [(folder / MAP_FOLDER / entry.name, entry) for entry in manifest.id_maps]
    for path, entry in listed:
        if not path.is_file():
            yield f"{path}: must be there, got nothing; copy it again"
        elif path.stat().st_size != entry.num_bytes:
            yield f"{path}: must have {entry.num_bytes} bytes, got {path.stat().st_size}; copy it again"
        elif file_entry(path).sha256 != entry.sha256:
            yield f"{path}: must have SHA-256 {entry.sha256[:12]}..., got another; copy it again"


def _part_faults(shard: Shard) -> list[str]:
    """Check what one part says about itself."""
    inner, halo = shard.nid[: shard.num_inner], shard.nid[shard.num_inner :]
    halo_owner = shard.owner[shard.num_inner :]
    plan = shard.plan
    num_rows = shard.num_local
    rules = {
        "inner nodes must be in ascending nid": bool((np.diff(inner) > 0).all()),
        "inner nodes must be owned here": bool((shard.owner[: shard.num_inner] == shard.rank).all()),
        "halo nodes must be owned elsewhere": bool((halo_owner != shard.rank).all()),
        "halo nodes must be grouped by owner, each group in ascending nid": bool(
            ((np.diff(halo_owner) > 0) | ((np.diff(halo_owner) == 0) & (np.diff(halo) > 0))).all()
        ),
        "nids must be in [0, N)": bool((shard.nid >= 0).all() and (shard.nid < shard.manifest.num_nodes).all()),
        "edges must join local rows": all(
            not len(rows) or bool(rows.min() >= 0 and rows.max() < num_rows) for rows in (shard.src, shard.dst)
        ),
        "eids must ascend": bool((np.diff(shard.eid) > 0).all()),
        "receive slices must cover the halo rows by owner": bool(
            plan.recv_offsets[0] == shard.num_inner
            and (np.diff(plan.recv_offsets) == np.bincount(halo_owner, minlength=shard.num_parts)).all()
        ),
        "send lists must name inner rows": bool(
            plan.send_offsets[-1] == len(plan.send_rows)
            and (not len(plan.send_rows) or 0 <= plan.send_rows.min() <= plan.send_rows.max() < shard.num_inner)
        ),
        "edge-cut: every edge must end at an inner node": shard.manifest.layout != "edge-cut"
        or not len(shard.dst)
        or bool(shard.dst.max() < shard.num_inner),
    }
    return [f"{shard.path}: {rule}" for rule, holds in rules.items() if not holds]


def _node_faults(shards: Sequence[Shard]) -> Iterator[str]:
    num_nodes = shards[0].manifest.num_nodes
    times_inner = np.zeros(num_nodes, dtype=np.int64)
    counted = {name: np.zeros(num_nodes, dtype=np.int64) for name in ("in_degree", "out_degree")}
    for shard in shards:
        times_inner[shard.nid[: shard.num_inner]] += 1
        for name, rows in (("in_degree", shard.dst), ("out_degree", shard.src)):
            counted[name][shard.nid] += np.bincount(rows, minlength=shard.num_local)
    if (times_inner != 1).any():
        nid = int(np.argmax(times_inner != 1))
        yield f"node {nid} must be inner in one part, is in {times_inner[nid]}"
    for shard in shards:
        for name, stored in (("in_degree", shard.in_degree), ("out_degree", shard.out_degree)):
            wrong = stored != counted[name][shard.nid]
            if wrong.any():
                row = int(np.argmax(wrong))
                nid = int(shard.nid[row])
                yield f"{shard.path}: {name} of node {nid} must be {counted[name][nid]}, got {stored[row]}"


def _edge_faults(shards: Sequence[Shard]) -> Iterator[str]:
    num_edges = shards[0].manifest.num_edges
    times = np.zeros(num_edges, dtype=np.uint8)
    for shard in shards:
        eid = shard.eid
        if len(eid) and (eid[0] < 0 or eid[-1] >= num_edges):
            yield f"{shard.path}: eids must be in [0, {num_edges})"
            return
        times[eid] = np.minimum(times[eid] + 1, 2)
    if (times != 1).any():
        wrong = int(np.argmax(times != 1))
        yield f"edge {wrong} must be in one part, is in {'none' if times[wrong] == 0 else 'several'}"


def _hop_faults(shards: Sequence[Shard]) -> Iterator[str]:
    """Check that halos are as deep as stated, and that the edges repeated for that are those of their owners."""
    hops = shards[0].manifest.halo_hops
    for shard in shards:
        outer = shard.outer_edges
        if hops == 1 or not outer:
            if hops > 1 or outer:
                yield f"{shard.path}: edges of halo nodes must be there if halos are several hops deep, and only then"
            continue
        if not all(((ends >= 0) & (ends < shard.num_local)).all() for ends in (outer["src"], outer["dst"])):
            yield f"{shard.path}: edges of halo nodes must join local rows"
            continue
        deep = shard.hop
        must = np.where((deep > 0) & (deep < hops), shard.in_degree, 0)
        if (deep > hops).any() or not np.array_equal(np.bincount(outer["dst"], minlength=shard.num_local), must):
            yield f"{shard.path}: halo nodes must be within {hops} hops, and those nearer must have all their in-edges"
        for owner in shards:
            mine = shard.owner[outer["dst"]] == owner.rank
            if not _are_edges_of(owner, shard, {name: values[mine] for name, values in outer.items()}):
                yield f"{shard.path}: edges of halo nodes must be those of {owner.path.name}"


def _are_edges_of(owner: Shard, shard: Shard, edges: Columns) -> bool:
    """Tell whether edges, by rows of one shard, are among the edges of another, with all that they carry."""
    rows = np.searchsorted(owner.eid, edges["eid"])
    if not len(rows):
        return True
    if rows[-1] >= owner.num_edges:
        return False
    ends = [np.array_equal(shard.nid[edges[name]], owner.nid[getattr(owner, name)[rows]]) for name in ENDS]
    more = [np.array_equal(values, getattr(owner, name)[rows]) for name, values in edges.items() if name not in ENDS]
    return all(ends + more)


def _exchange_faults(shards: Sequence[Shard]) -> Iterator[str]:
    """Check that what p sends to q is what q expects from p, and that copies equal their originals."""
    for sender in shards:
        for receiver in shards:
            plan, peer = sender.plan, receiver.plan
            rows = plan.send_rows[plan.send_offsets[receiver.rank] : plan.send_offsets[receiver.rank + 1]]
            copies = slice(peer.recv_offsets[sender.rank], peer.recv_offsets[sender.rank + 1])
            pair = f"{sender.path} to {receiver.path.name}"
            if not np.array_equal(sender.nid[rows], receiver.nid[copies]):
                yield f"{pair}: the rows sent must be the halo rows expected, in the same order"
                continue
            for name in ("in_degree", "out_degree", "label", "labels", "split", "ntype", "features", "aggregates"):
                original, copy = getattr(sender, name), getattr(receiver, name)
                if original is not None and not np.array_equal(original[rows], copy[copies]):
                    yield f"{pair}: {name} of copies must equal that of their originals"


def _id_faults(folder: Path, shards: Sequence[Shard]) -> Iterator[str]:
    """Check that each part's ids are those of the map, which has one for each node."""
    manifest = shards[0].manifest
    offsets = manifest.node_type_offsets or [0, manifest.num_nodes]
    for ntype, entry in enumerate(manifest.id_maps):
        low, high = offsets[ntype : ntype + 2]
        path = folder / MAP_FOLDER / entry.name
        own = [_IdRows(shard.path / id_file(ntype)) for shard in shards]
        wrong, num_ids = set[int](), 0
        # Side by side, since all ids at once may be more than memory holds.
        for batch in id_batches(path):
            first = low + num_ids
            for shard in shards:
                start, stop = np.searchsorted(shard.nid[: shard.num_inner], [first, first + len(batch)])
                expected = batch.take(pa.array(shard.nid[start:stop] - first))
                if not _same(own[shard.rank].take(int(stop - start)), expected):
                    wrong.add(shard.rank)
            num_ids += len(batch)
        if num_ids != high - low:
            yield f"{path}: must have {high - low} ids, got {num_ids}"
            continue
        for shard in shards:
            if shard.rank in wrong or len(own[shard.rank].take(1)):
                yield f"{shard.path}: ids of inner nodes must be those of the map"


class _IdRows:
    """The ids of a file, some rows at a time."""

    def __init__(self, path: Path) -> None:
        self._batches = id_batches(path)
        self._held = pa.nulls(0)

    def take(self, count: int) -> pa.Array:
        """Return the next rows, fewer at the end of the file."""
        while len(self._held) < count and (batch := next(self._batches, None)) is not None:
            self._held = pa.concat_arrays([self._held, batch]) if len(self._held) else batch
        taken, self._held = self._held.slice(0, count), self._held.slice(count)
        return taken


def _same(found: pa.Array, expected: pa.Array) -> bool:
    return len(found) == len(expected) and (not len(found) or bool(found.equals(expected)))


def _held_out_faults(shards: Sequence[Shard]) -> Iterator[str]:
    """Check that edges held out, and those that join their ends, are as many as stated; the former with their ends."""
    sizes = {str(split): size for split, size in shards[0].manifest.held_out_sizes.items()}
    if not sizes:
        return
    eids = []
    for split in HELD_OUT_SPLITS:
        tables = [shard.held_out_edges(split) for shard in shards]
        num_rows = sum(table.num_rows for table in tables)
        if num_rows != sizes.get(split):
            yield f"{split} edges held out must be {sizes.get(split)}, as the manifest says, got {num_rows}"
        for shard, table in zip(shards, tables, strict=True):
            held = {name: table.column(name).to_numpy() for name in ("src", "dst", "eid", "src_row", "dst_row")}
            yield from _held_out_part_faults(shard, split, held)
            eids.append(held["eid"])
    first = shards[0].manifest.num_edges
    if not np.array_equal(np.sort(np.concatenate(eids)), first + np.arange(sum(map(len, eids)))):
        yield f"eids of held-out edges must be all from {first} on, once each"
    stated, found = shards[0].manifest.leaking_edges, count_leaking(shards, shards[0].manifest.num_nodes)
    if found != stated:
        yield f"edges between nodes whose edges are held out must be {stated}, as the manifest says, got {found}"


def _held_out_part_faults(shard: Shard, split: str, held: Columns) -> Iterator[str]:
    here = held["src_row"] >= 0
    rules = {
        "destinations must be inner nodes": bool(((held["dst_row"] >= 0) & (held["dst_row"] < shard.num_inner)).all()),
        "src_row must be below the number of local rows": bool((held["src_row"] < shard.num_local).all()),
    }
    if all(rules.values()):
        rules["dst_row must be the row of dst"] = np.array_equal(shard.nid[held["dst_row"]], held["dst"])
        rules["src_row must be the row of src, or -1 where it has none"] = np.array_equal(
            shard.nid[held["src_row"][here]], held["src"][here]
        ) and not bool(np.isin(held["src"][~here], shard.nid).any())
    yield from (f"{shard.path}: {split} edges held out: {rule}" for rule, holds in rules.items() if not holds)
