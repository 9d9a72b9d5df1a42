"""Datasets of shards in the formats of other tools, one module a target over one small interface."""
