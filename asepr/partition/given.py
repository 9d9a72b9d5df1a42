"""A partition that was made elsewhere, as a method."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from asepr.contracts import Assignment, PartitionProblem
from asepr.errors import ConfigError
from asepr.partition.copies import mark_copies
from asepr.partition.edges_by_owner import edges_to_lower_degree_owner
from asepr.partition.methods import Method


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenParts:
    """The part of each node, which then owns it, or of each edge.

    Attributes
    ----------
    of : "nodes" or "edges"
    part : integer (N,) by nid, or (E,) in input order
    where : str
        Where it came from, for messages.
    """

    of: Literal["nodes", "edges"]
    part: npt.NDArray[np.integer]
    where: str

    def assign(self, problem: PartitionProblem) -> Assignment:
        """Return the assignment; caps are not looked at.

        In the edge-cut layout edges follow the owner of their destination. In a vertex-cut with given
        nodes an edge follows its end of lower degree, as long as the cap on edges allows; with given
        edges owners are chosen among the parts that hold a node.

        Raises
        ------
        ConfigError
            The parts are not one a node or edge, not in [0, K), or not all in use; or edges are given for an
            edge-cut.
        """
        self._check(problem)
        if self.of == "edges":
            return Method(edges=lambda _: self.part.astype(np.int16)).assign(problem)
        owner = self.part.astype(np.int32)
        if problem.layout == "edge-cut":
            return Method(nodes=lambda _: owner).assign(problem)
        edge_part = edges_to_lower_degree_owner(problem, owner)
        return Assignment(
            layout="vertex-cut",
            num_parts=problem.num_parts,
            owner=owner,
            copies=mark_copies(problem.source, edge_part, owner, problem.num_parts),
            edge_part=edge_part,
        )

    def _check(self, problem: PartitionProblem) -> None:
        count = problem.source.num_nodes if self.of == "nodes" else problem.source.num_edges
        if self.of == "edges" and problem.layout == "edge-cut":
            raise ConfigError(
                f"{self.where}: parts must be of nodes for an edge-cut, got edges; use --layout vertex-cut"
            )
        if len(self.part) != count:
            raise ConfigError(
                f"{self.where}: parts must be one for each of the {count} {self.of}, got {len(self.part)}; "
                "check that both are of the same graph, and --of"
            )
        outside = (self.part < 0) | (self.part >= problem.num_parts)
        if outside.any():
            row = int(np.argmax(outside))
            raise ConfigError(
                f"{self.where}: {self.of[:-1]} {row}: part must be in [0, {problem.num_parts}), got {self.part[row]}; "
                "raise --parts"
            )
        unused = np.flatnonzero(np.bincount(self.part, minlength=problem.num_parts) == 0)
        if len(unused) and self.of == "nodes":
            raise ConfigError(f"{self.where}: every part must own a node, got none in part {unused[0]}; lower --parts")
