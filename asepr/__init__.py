"""`asepr`: partition huge attributed graphs into self-contained shards, and train on them.

import asepr

result = asepr.partition("edges.parquet", "shards", nodes="nodes.parquet", num_parts=4)
for shard in asepr.open_shards("shards"):
    graph = shard.dgl_graph()
"""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asepr.formats.graph_objects import from_dgl as from_dgl
    from asepr.formats.graph_objects import from_networkx as from_networkx
    from asepr.formats.graph_objects import from_pyg as from_pyg
    from asepr.formats.graph_objects import from_scipy as from_scipy
    from asepr.formats.id_maps import original_ids as original_ids
    from asepr.pipeline import PartitionResult as PartitionResult
    from asepr.pipeline import PipelineConfig as PipelineConfig
    from asepr.pipeline import inspect as inspect
    from asepr.pipeline import lookup as lookup
    from asepr.pipeline import partition as partition
    from asepr.pipeline import verify as verify
    from asepr.trainer_plugin.shard_graph import open_shard as open_shard
    from asepr.trainer_plugin.shard_graph import open_shards as open_shards

__version__ = "0.1.0"

_HOME = {
    "from_dgl": "asepr.formats.graph_objects",
    "from_networkx": "asepr.formats.graph_objects",
    "from_pyg": "asepr.formats.graph_objects",
    "from_scipy": "asepr.formats.graph_objects",
    "original_ids": "asepr.formats.id_maps",
    "lookup": "asepr.pipeline",
    "PartitionResult": "asepr.pipeline",
    "PipelineConfig": "asepr.pipeline",
    "inspect": "asepr.pipeline",
    "verify": "asepr.pipeline",
    "open_shard": "asepr.trainer_plugin.shard_graph",
    "open_shards": "asepr.trainer_plugin.shard_graph",
}
"""Where each public name lives; imported when first asked for, so that `import asepr` costs nothing."""

__all__ = ["__version__", "partition", *_HOME]


class _PartitionPackage(types.ModuleType):
    """The sub-package `asepr.partition`, which is also the function of that name when called."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return importlib.import_module("asepr.pipeline").partition(*args, **options)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'asepr' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


importlib.import_module("asepr.partition")
sys.modules["asepr.partition"].__class__ = _PartitionPackage
