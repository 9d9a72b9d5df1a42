"""Items come in their order, and errors where they belong."""

import threading
from collections.abc import Iterator

import pytest

from asepr.stream.read_ahead import read_ahead


def test_items_come_in_order():
    assert list(read_ahead(range(100))) == list(range(100))
    assert list(read_ahead([])) == []


def test_one_item_is_made_ahead_by_another_thread():
    makers = []

    def items() -> Iterator[int]:
        for item in range(3):
            makers.append(threading.get_ident())
            yield item

    assert list(read_ahead(items())) == [0, 1, 2]
    assert threading.get_ident() not in makers


def test_an_error_comes_after_the_items_before_it():
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    ahead = read_ahead(items())
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="no more"):
        next(ahead)
