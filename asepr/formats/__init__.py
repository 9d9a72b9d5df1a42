"""Every byte in and out: sources, shards, manifest, reports."""
