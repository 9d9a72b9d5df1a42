"""The methods by name: each turns a problem into an assignment in either layout."""

from collections.abc import Callable

from asepr.contracts import Assignment, EdgePartArray, PartArray, Partitioner, PartitionProblem
from asepr.errors import ConfigError
from asepr.partition.asepr import place_edges
from asepr.partition.copies import mark_copies
from asepr.partition.edges_by_owner import edges_to_lower_degree_owner
from asepr.partition.hashing import dbh, hash_edges, hash_nodes
from asepr.partition.hdrf import hdrf
from asepr.partition.metis import metis_owner
from asepr.partition.node_partition import partition_nodes
from asepr.partition.owners import choose_owners

EdgeMethod = Callable[[PartitionProblem], EdgePartArray]
NodeMethod = Callable[[PartitionProblem], PartArray]


class Method:
    """A way to place edges, a way to place nodes, and what is missing made from the other.

    Parameters
    ----------
    edges : function of the problem, or None
        Used for the vertex-cut layout. None: edges follow the owners that `nodes` gives.
    nodes : function of the problem, or None
        Used for the edge-cut layout. None: owners are chosen among the parts where `edges` puts
        each node's edges.
    """

    def __init__(self, *, edges: EdgeMethod | None = None, nodes: NodeMethod | None = None) -> None:
        self._edges = edges
        self._nodes = nodes

    def assign(self, problem: PartitionProblem) -> Assignment:
        """Return the assignment for the problem's layout."""
        if problem.layout == "vertex-cut":
            return self._vertex_cut(problem)
        owner = self._owners(problem)
        return Assignment(
            layout="edge-cut",
            num_parts=problem.num_parts,
            owner=owner,
            copies=mark_copies(problem.source, None, owner, problem.num_parts),
        )

    def _vertex_cut(self, problem: PartitionProblem) -> Assignment:
        if self._edges is not None:
            edge_part = self._edges(problem)
        else:
            edge_part = edges_to_lower_degree_owner(problem, self._owners(problem))
        copies = mark_copies(problem.source, edge_part, None, problem.num_parts)
        owner = choose_owners(problem, copies)
        return Assignment(
            layout="vertex-cut", num_parts=problem.num_parts, owner=owner, copies=copies, edge_part=edge_part
        )

    def _owners(self, problem: PartitionProblem) -> PartArray:
        if self._nodes is not None:
            return self._nodes(problem)
        assert self._edges is not None
        copies = mark_copies(problem.source, self._edges(problem), None, problem.num_parts)
        return choose_owners(problem, copies)


METHODS: dict[str, Callable[[], Partitioner]] = {
    "asepr": lambda: Method(edges=place_edges, nodes=partition_nodes),
    "random": lambda: Method(edges=hash_edges, nodes=hash_nodes),
    "dbh": lambda: Method(edges=dbh),
    "hdrf": lambda: Method(edges=hdrf),
    "metis": lambda: Method(nodes=metis_owner),
}


def get_method(name: str) -> Partitioner:
    """Return the method of that name.

    Raises
    ------
    ConfigError
        There is none; the message lists those there are.
    """
    if name not in METHODS:
        raise ConfigError(f"method must be one of {', '.join(METHODS)}, got '{name}'; choose one of these")
    return METHODS[name]()
