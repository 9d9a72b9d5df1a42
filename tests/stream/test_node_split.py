import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asepr.errors import NodeSourceError
from asepr.stream.node_split import draw_split


@given(
    label=st.lists(st.integers(-1, 4), min_size=30, max_size=200),
    shares=st.sampled_from([(0.8, 0.1, 0.1), (0.5, 0.25, 0.25), (0.34, 0.33, 0.33), (0.9, 0.1, 0.0), (1.0, 0.0, 0.0)]),
    seed=st.integers(0, 5),
)
def test_every_label_has_its_shares(label: list[int], shares: tuple[float, ...], seed: int):
    labels = np.array([*label, *range(5), *range(5)] * 2)
    split = draw_split(len(labels), labels, shares, seed)
    assert (split[labels == -1] == 0).all()
    assert (split[labels >= 0] > 0).all()
    for of_label, slack in [(labels == value, 2) for value in range(5)] + [(labels >= 0, 1)]:
        for code, share in enumerate(shares, start=1):
            assert abs(np.count_nonzero(split[of_label] == code) - share * np.count_nonzero(of_label)) < slack


def test_nodes_without_labels_are_all_drawn():
    split = draw_split(1000, None, (0.8, 0.1, 0.1), 0)
    assert np.bincount(split).tolist() == [0, 800, 100, 100]
    assert not np.array_equal(split, draw_split(1000, None, (0.8, 0.1, 0.1), 1))


def test_a_share_without_nodes_is_refused():
    with pytest.raises(NodeSourceError, match="split: test must get at least one node, got none of 2"):
        draw_split(3, np.array([0, -1, 0]), (0.5, 0.4, 0.1), 0)
