"""Passes that see edges, or node attributes, one chunk at a time."""
