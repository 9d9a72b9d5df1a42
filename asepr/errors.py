"""The errors `asepr` raises for input, files and peers; everything else is a bug of ours.

Every message reads ``where: rule, got value; remedy`` so that one line is enough to act on.
"""


class AseprError(Exception):
    """Base of every error that is the caller's, a file's or a peer's to mend."""


class ConfigError(AseprError):
    """An option is out of its range, or options contradict each other."""


class TableError(AseprError):
    """A file, folder or object that should hold rows cannot be read as such, whatever the rows mean."""


class EdgeSourceError(TableError):
    """An edge file, or one of its rows, is not what it must be."""


class NodeSourceError(TableError):
    """A node or feature file, or one of its rows, is not what it must be."""


class OutputError(AseprError):
    """The output cannot be written where it was asked for."""


class CapacityError(AseprError):
    """The parts cannot hold the graph under the bounds that were asked for."""


class ShardError(AseprError):
    """A shard folder or its manifest is missing, damaged or of another version."""


class TrainingError(AseprError):
    """Training cannot start or go on with these shards, options or peers."""
