"""What a line of the input stands for: directions, self-loops, duplicates, and edges held out to be predicted.

A graph is rewritten into temporary arrays once, before anything looks at it:

1. self-loops are dropped, if asked;
2. every pair of nodes is drawn into training, validation or test, if asked, with all edges between the two; or edges
   are where the data say;
3. edges of training, and reverses of them where asked, whose ends and type are the same become one, if asked;
4. what is left is numbered: input edges in their order, then reverses in the order of the edges that they reverse,
   then self-loops that are added, by node.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import (
    DUPLICATES,
    SELF_LOOPS,
    SPLIT_CODES,
    Buckets,
    ByteArray,
    Duplicates,
    EdgeChunk,
    EdgeSource,
    FloatArray,
    HeldOutEdges,
    IdArray,
    PartArray,
    Scratch,
    SelfLoops,
)
from asepr.errors import ConfigError, EdgeSourceError

FORWARD, REVERSE, VALID, TEST = 1, 2, 4, 8
"""What becomes of an input edge, as bits: it is an edge, its reverse is one, it is held out for either."""

MERGE_EDGE_BYTES = 400
"""Merging a bucket, an edge of it: rows, both directions, their order and their groups."""

MAX_BUCKETS = 4096
MERGE_SHARE = 0.25
"""Part of the memory budget that a bucket may take."""

_COARSE_BITS = 16


def check_fractions(option: str, fractions: tuple[float, ...]) -> None:
    """Check the shares of training, validation and test.

    Raises
    ------
    ConfigError
        They are not three numbers of at least 0 that sum to 1, the first above 0.
    """
    good = len(fractions) == 3 and all(math.isfinite(f) and f >= 0 for f in fractions) and fractions[0] > 0
    if not good or abs(sum(fractions) - 1) > 1e-6:
        raise ConfigError(
            f"{option} must be three fractions, train, val, test, that sum to 1, train above 0, "
            f"got {','.join(f'{f:g}' for f in fractions)}; 0.8,0.1,0.1 is usual"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeRules:
    """What input edges stand for.

    Attributes
    ----------
    undirected : bool
        An input edge stands for both directions.
    add_reverse : bool
        Edges have a direction, and each gets a reverse beside it.
    self_loops : "keep", "drop" or "add"
        `add`: one at each node that has none.
    duplicates : "keep" or "merge"
        `merge`: of edges of the same ends and type the first stays, with the sum of their weights.
    edge_split : tuple of three fractions, or empty
        Shares of training, validation and test edges; those of the latter two are held out.
    """

    undirected: bool = False
    add_reverse: bool = False
    self_loops: SelfLoops = "keep"
    duplicates: Duplicates = "keep"
    edge_split: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Check the values.

        Raises
        ------
        ConfigError
            One is not among its names, or two do not go together.
        """
        for name, names in (("self_loops", SELF_LOOPS), ("duplicates", DUPLICATES)):
            if getattr(self, name) not in names:
                raise ConfigError(f"{name} must be one of {', '.join(names)}, got '{getattr(self, name)}'; choose one")
        if self.undirected and self.add_reverse:
            raise ConfigError(
                "add_reverse must not come with undirected, which gives both directions already, got both; choose one"
            )
        if self.edge_split:
            check_fractions("edge_split", self.edge_split)

    @property
    def change_nothing(self) -> bool:
        """Whether the edges of the input are the edges of the graph."""
        return self == EdgeRules()

    @property
    def reverses(self) -> bool:
        """Whether edges get a reverse."""
        return self.undirected or self.add_reverse


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeCodes:
    """Edge types of the edges that rules make.

    Attributes
    ----------
    reverse : int32 (T,), type of the reverse of an edge of each type
    loop : int32 (N,), type of the self-loop added at each node; None where none are added
    """

    reverse: PartArray
    loop: PartArray | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeCounts:
    """What became of input edges: `edges_in` less all that were taken, and all that were added, is `edges`."""

    edges_in: int
    self_loops_dropped: int = 0
    held_out_valid: int = 0
    held_out_test: int = 0
    merged: int = 0
    reverses_added: int = 0
    self_loops_added: int = 0

    @property
    def edges(self) -> int:
        """Edges of the graph, which are those in shards."""
        taken = self.self_loops_dropped + self.held_out_valid + self.held_out_test + self.merged
        return self.edges_in - taken + self.reverses_added + self.self_loops_added


@dataclass(frozen=True, kw_only=True, slots=True)
class RewrittenEdges:
    """The edges of the graph in temporary arrays, E of them; `input_row` and `is_reverse` as in `EdgeTable`."""

    src: npt.NDArray[Any]
    dst: npt.NDArray[Any]
    etype: PartArray | None
    weight: FloatArray | None
    input_row: IdArray
    is_reverse: ByteArray | None
    held_out: HeldOutEdges | None
    counts: EdgeCounts


def rewrite_edges(
    source: EdgeSource,
    rules: EdgeRules,
    codes: TypeCodes | None,
    scratch: Scratch,
    *,
    seed: int,
    memory_bytes: int,
    split: ByteArray | None = None,
) -> RewrittenEdges:
    """Apply rules to the edges of the input.

    Parameters
    ----------
    source : EdgeSource
    rules : EdgeRules
    codes : TypeCodes or None
        None: the edges that rules make have no type, or that of the edge they come from.
    scratch : Scratch
    seed : int
        Of the draw of held-out edges, which depends on nothing else but the two nids and `edge_split`.
    memory_bytes : int
        Of which a bucket of duplicates takes a part.
    split : uint8 (E,), optional
        Code in `SPLIT_CODES` of each input edge; then none is drawn.

    Returns
    -------
    RewrittenEdges

    Raises
    ------
    EdgeSourceError
        A share of `edge_split` gets no edge; an edge of `split` is in none of the three.

    Notes
    -----
    Three to six passes; memory of a bucket, and a byte a node where self-loops are added. All edges between two nodes
    are in one bucket, so memory is more where one pair has more edges than a bucket should. No result depends on chunks
    or memory.
    """
    flags = scratch.array("flags", (source.num_edges,), np.uint8)
    dropped = _mark(source, rules, seed, flags, split)
    _check_split(rules, flags)
    before = _tally(flags, FORWARD | VALID | TEST)
    weights = _Weights()
    if rules.duplicates == "merge":
        weights = _merge(source, rules, codes, flags, scratch, memory_bytes)
    loops = _nodes_without_loop(source) if rules.self_loops == "add" else np.empty(0, np.int64)
    counts = EdgeCounts(
        edges_in=source.num_edges,
        self_loops_dropped=dropped,
        held_out_valid=_tally(flags, VALID),
        held_out_test=_tally(flags, TEST),
        merged=before - _tally(flags, FORWARD | VALID | TEST),
        reverses_added=_tally(flags, REVERSE),
        self_loops_added=len(loops),
    )
    return _Filler(source, rules, codes, counts, scratch).fill(flags, weights, loops)


def disk_bytes(
    num_nodes: int, num_edges: int, rules: EdgeRules, *, has_etype: bool, has_weight: bool, is_split: bool = False
) -> int:
    """Return the most temporary disk that rewriting takes, of which the arrays stay until the run ends."""
    if rules.change_nothing and not is_split:
        return 0
    id_bytes = 4 if num_nodes < 2**31 else 8
    more = 4 * has_etype + 4 * has_weight
    at_most = num_edges * (1 + rules.reverses) + (num_nodes if rules.self_loops == "add" else 0)
    kept = at_most * (2 * id_bytes + 9 + more) + num_edges
    merging = num_edges * (8 + 2 * id_bytes + more + 8 * has_weight) if rules.duplicates == "merge" else 0
    return kept + merging


def _mark(source: EdgeSource, rules: EdgeRules, seed: int, flags: ByteArray, split: ByteArray | None) -> int:
    """Fill `flags` of every input edge; return how many self-loops are dropped."""
    limits = _split_limits(source, rules, seed) if rules.edge_split else None
    dropped = 0
    for chunk in source:
        is_loop = chunk.src == chunk.dst
        mark = np.full(len(chunk), FORWARD, dtype=np.uint8)
        if limits is not None:
            drawn = np.searchsorted(limits, hash_pairs(chunk.src, chunk.dst, seed))
            mark = np.array([FORWARD, VALID, TEST], dtype=np.uint8)[drawn]
        if split is not None:
            codes = split[chunk.first_eid : chunk.first_eid + len(chunk)]
            if not codes.all():
                row = chunk.first_eid + int(np.argmin(codes))
                raise EdgeSourceError(
                    f"edges: row {row}: split must be train, val or test, got none; fill it, or drop the row"
                )
            mark = np.array([0, FORWARD, VALID, TEST], dtype=np.uint8)[codes]
        if rules.reverses:
            mark[(mark == FORWARD) & ~is_loop] |= REVERSE
        if rules.self_loops == "drop":
            mark[is_loop] = 0
            dropped += int(np.count_nonzero(is_loop))
        flags[chunk.first_eid : chunk.first_eid + len(chunk)] = mark
    return dropped


def hash_pairs(src: IdArray, dst: IdArray, seed: int) -> npt.NDArray[np.uint64]:
    """Return uint64 (E,): a mix of seed and both ends, the same in either direction.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014, the finalizer of splitmix64.
    """
    low, high = np.minimum(src, dst).astype(np.uint64), np.maximum(src, dst).astype(np.uint64)
    start = np.uint64(_GOLDEN * (seed + 1) % 2**64)
    mixed: npt.NDArray[np.uint64] = _mix(_mix(low + start) ^ high)
    return mixed


_GOLDEN = 0x9E3779B97F4A7C15


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = x + np.uint64(_GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _split_limits(source: EdgeSource, rules: EdgeRules, seed: int) -> npt.NDArray[np.uint64]:
    """Return uint64 (2,): the last hashes of training and of validation, so that each has its share of edges."""
    coarse = np.zeros(1 << _COARSE_BITS, dtype=np.int64)
    for hashes in _hashes(source, rules, seed):
        coarse += np.bincount((hashes >> np.uint64(64 - _COARSE_BITS)).astype(np.int64), minlength=len(coarse))
    ends = np.cumsum(coarse)
    ranks = np.rint(np.cumsum(rules.edge_split)[:2] * ends[-1]).astype(np.int64)
    bins = np.searchsorted(ends, ranks)
    found: list[list[npt.NDArray[np.uint64]]] = [[], []]
    for hashes in _hashes(source, rules, seed):
        bin_of = (hashes >> np.uint64(64 - _COARSE_BITS)).astype(np.int64)
        for held, wanted in zip(found, bins, strict=True):
            held.append(hashes[bin_of == wanted])
    return np.array(
        [
            np.sort(np.concatenate(held))[rank - 1 - (ends[wanted] - coarse[wanted])] if rank else 0
            for held, wanted, rank in zip(found, bins, ranks, strict=True)
        ],
        dtype=np.uint64,
    )


def _hashes(source: EdgeSource, rules: EdgeRules, seed: int) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield hashes of the edges that are drawn: all, or all but the self-loops that are dropped."""
    for chunk in source:
        hashes = hash_pairs(chunk.src, chunk.dst, seed)
        yield hashes[chunk.src != chunk.dst] if rules.self_loops == "drop" else hashes


def _check_split(rules: EdgeRules, flags: ByteArray) -> None:
    for name, bit, share in zip(("train", "val", "test"), (FORWARD, VALID, TEST), rules.edge_split, strict=False):
        if share > 0 and not _tally(flags, bit):
            raise EdgeSourceError(
                f"edge_split: {name} must get at least one edge, got none of {len(flags)} for a share of {share:g}; "
                "change the fractions, or leave them out"
            )


def _tally(flags: ByteArray, bits: int) -> int:
    block = 1 << 22
    return sum(int(np.count_nonzero(flags[i : i + block] & bits)) for i in range(0, len(flags), block))


def _nodes_without_loop(source: EdgeSource) -> IdArray:
    has_loop = np.zeros(source.num_nodes, dtype=np.bool_)
    for chunk in source:
        has_loop[chunk.src[chunk.src == chunk.dst]] = True
    return np.flatnonzero(~has_loop)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Weights:
    """Summed weights of the edges that stay, by input row, and of their reverses; None: as in the input."""

    forward: FloatArray | None = None
    reverse: FloatArray | None = None


def _merge(
    source: EdgeSource,
    rules: EdgeRules,
    codes: TypeCodes | None,
    flags: ByteArray,
    scratch: Scratch,
    memory_bytes: int,
) -> _Weights:
    """Clear the flags of all but the first of equal edges, and sum their weights."""
    weights = _Weights()
    if source.has_weight:
        both = scratch.array("summed", (2, source.num_edges), np.float32)
        weights = _Weights(forward=both[0], reverse=both[1])
    num_buckets = math.ceil(source.num_edges * MERGE_EDGE_BYTES / (MERGE_SHARE * memory_bytes))
    buckets = _bucket_pairs(source, scratch, min(max(num_buckets, 1), MAX_BUCKETS))
    for bucket in range(buckets.num_buckets):
        _merge_bucket(buckets.read(bucket), rules, codes, flags, weights)
    buckets.close()
    return weights


def _bucket_pairs(source: EdgeSource, scratch: Scratch, num_buckets: int) -> Buckets:
    nid = np.int32 if source.num_nodes < 2**31 else np.int64
    fields: list[tuple[str, type]] = [("row", np.int64), ("src", nid), ("dst", nid)]
    fields += [("etype", np.int32)] * source.has_etype + [("weight", np.float32)] * source.has_weight
    buckets = scratch.buckets("pairs", num_buckets, np.dtype(fields))
    for chunk in source:
        rows = np.empty(len(chunk), dtype=buckets.dtype)
        rows["row"] = np.arange(chunk.first_eid, chunk.first_eid + len(chunk))
        for name in rows.dtype.names[1:]:
            rows[name] = getattr(chunk, name)
        bucket_of = hash_pairs(chunk.src, chunk.dst, 0) % np.uint64(num_buckets)
        buckets.append(bucket_of.astype(np.int64), rows)
    return buckets


def _merge_bucket(
    rows: npt.NDArray[Any], rules: EdgeRules, codes: TypeCodes | None, flags: ByteArray, weights: _Weights
) -> None:
    mark = flags[rows["row"]]
    forward, reverse = np.flatnonzero(mark & (FORWARD | VALID | TEST)), np.flatnonzero(mark & REVERSE)
    etype = rows["etype"] if "etype" in (rows.dtype.names or ()) else np.zeros(len(rows), np.int32)
    back = etype if codes is None else codes.reverse[etype]
    src, dst = rows["src"], rows["dst"]
    if rules.undirected:
        # An edge that is held out has no reverse, but either direction is the same edge.
        swap = ((mark & FORWARD) == 0) & (back == etype) & (src > dst)
        src, dst = np.where(swap, dst, src), np.where(swap, src, dst)
    ends = (
        np.concatenate([src[forward], dst[reverse]]),
        np.concatenate([dst[forward], src[reverse]]),
        np.concatenate([etype[forward], back[reverse]]),
    )
    of_row = np.concatenate([forward, reverse])
    # What a split of the data holds out is no duplicate of what it does not.
    keys = (*ends, np.concatenate([mark[forward] & (VALID | TEST), np.zeros(len(reverse), np.uint8)]))
    # Stable: within a group input edges in their order, then reverses in that order.
    order = np.lexsort(keys[::-1])
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
    gone = order[~is_first]
    lost = rows["row"][of_row[gone]]
    is_forward = gone < len(forward)
    flags[lost[is_forward]] &= REVERSE
    flags[lost[~is_forward]] &= FORWARD
    if weights.forward is None or weights.reverse is None:
        return
    total = np.bincount(np.cumsum(is_first) - 1, weights=rows["weight"][of_row[order]])
    first = order[is_first]
    row, is_forward = rows["row"][of_row[first]], first < len(forward)
    weights.forward[row[is_forward]] = total[is_forward]
    weights.reverse[row[~is_forward]] = total[~is_forward]


class _Filler:
    """Writes the edges that are left into arrays: input edges, reverses, added self-loops, and those held out."""

    def __init__(
        self, source: EdgeSource, rules: EdgeRules, codes: TypeCodes | None, counts: EdgeCounts, scratch: Scratch
    ) -> None:
        self._source, self._codes, self._counts = source, codes, counts
        self._has_etype = source.has_etype or codes is not None
        nid = np.int32 if source.num_nodes < 2**31 else np.int64
        kinds: dict[str, Any] = {"src": nid, "dst": nid, "input_row": np.int64}
        if self._has_etype:
            kinds["etype"] = np.int32
        if source.has_weight:
            kinds["weight"] = np.float32
        num_held = counts.held_out_valid + counts.held_out_test
        self._edges = {name: scratch.array(name, (counts.edges,), kind) for name, kind in kinds.items()}
        if rules.reverses:
            self._edges["is_reverse"] = scratch.array("is_reverse", (counts.edges,), np.uint8)
        self._held = {name: scratch.array(f"held_{name}", (num_held,), kind) for name, kind in kinds.items()}
        self._split = scratch.array("held_split", (num_held,), np.uint8)

    def fill(self, flags: ByteArray, weights: _Weights, loops: IdArray) -> RewrittenEdges:
        """Fill all arrays in one pass."""
        forward = held = 0
        reverse = self._counts.edges - self._counts.reverses_added - len(loops)
        for chunk in self._source:
            mark = flags[chunk.first_eid : chunk.first_eid + len(chunk)]
            chosen = np.flatnonzero(mark & FORWARD)
            forward = self._put(self._edges, forward, chunk, chosen, weights.forward)
            chosen = np.flatnonzero(mark & REVERSE)
            reverse = self._put(self._edges, reverse, self._turned(chunk), chosen, weights.reverse, is_reverse=1)
            chosen = np.flatnonzero(mark & (VALID | TEST))
            self._split[held : held + len(chosen)] = np.where(
                mark[chosen] & VALID, SPLIT_CODES["val"], SPLIT_CODES["test"]
            )
            held = self._put(self._held, held, chunk, chosen, weights.forward)
        self._put_loops(loops)
        return RewrittenEdges(
            src=self._edges["src"],
            dst=self._edges["dst"],
            etype=self._edges.get("etype"),
            weight=self._edges.get("weight"),
            input_row=self._edges["input_row"],
            is_reverse=self._edges.get("is_reverse"),
            held_out=HeldOutEdges(split=self._split, **self._held) if len(self._split) else None,
            counts=self._counts,
        )

    def _turned(self, chunk: EdgeChunk) -> EdgeChunk:
        etype = chunk.etype
        if self._codes is not None:
            etype = self._codes.reverse[np.zeros(len(chunk), np.int32) if etype is None else etype]
        return EdgeChunk(src=chunk.dst, dst=chunk.src, first_eid=chunk.first_eid, etype=etype, weight=chunk.weight)

    def _put(
        self,
        arrays: dict[str, npt.NDArray[Any]],
        start: int,
        chunk: EdgeChunk,
        chosen: IdArray,
        weight: FloatArray | None,
        *,
        is_reverse: int = 0,
    ) -> int:
        """Write the chosen edges of a chunk from `start` on; return where the next ones go."""
        rows = slice(start, start + len(chosen))
        input_row = chunk.first_eid + chosen
        arrays["src"][rows], arrays["dst"][rows] = chunk.src[chosen], chunk.dst[chosen]
        arrays["input_row"][rows] = input_row
        if "etype" in arrays:
            arrays["etype"][rows] = 0 if chunk.etype is None else chunk.etype[chosen]
        if chunk.weight is not None:
            arrays["weight"][rows] = chunk.weight[chosen] if weight is None else weight[input_row]
        if "is_reverse" in arrays:
            arrays["is_reverse"][rows] = is_reverse
        return rows.stop

    def _put_loops(self, loops: IdArray) -> None:
        rows = slice(self._counts.edges - len(loops), self._counts.edges)
        self._edges["src"][rows] = self._edges["dst"][rows] = loops
        self._edges["input_row"][rows] = -1
        if "weight" in self._edges:
            self._edges["weight"][rows] = 1
        if self._codes is not None and self._codes.loop is not None:
            self._edges["etype"][rows] = self._codes.loop[loops]
