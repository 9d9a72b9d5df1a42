"""The next item of an iteration is made while the last one is worked on."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items in their order, one made ahead by a second thread.

    Reading and kernels leave the interpreter free, so the two overlap; what is yielded does not depend on it.
    An error in making an item is raised where that item would be yielded.
    """
    end = object()
    iterator = iter(items)
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending = pool.submit(next, iterator, end)
        while (item := pending.result()) is not end:
            pending = pool.submit(next, iterator, end)
            yield item  # type: ignore[misc]
