"""One script a question; each takes `--quick` and `--json FILE`."""
