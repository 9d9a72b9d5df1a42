import pytest

from asepr.errors import CapacityError
from asepr.partition.plan import Form, make_plan

GRAPH = {"num_nodes": 1_000_000, "num_edges": 100_000_000, "num_parts": 32}


def test_a_large_budget_takes_the_edges_into_memory_and_a_small_one_does_not():
    large = make_plan(**GRAPH, method="asepr", layout="vertex-cut", memory_bytes=10**10)
    small = make_plan(**GRAPH, method="asepr", layout="vertex-cut", memory_bytes=10**9)
    assert (large.form, small.form) == (Form.IN_MEMORY, Form.STREAMING)
    assert large.memory_bytes > 20 * GRAPH["num_edges"]
    assert small.memory_bytes <= 10**9


def test_streaming_memory_grows_with_one_part_not_with_all_edges():
    plans = [
        make_plan(num_nodes=10**6, num_edges=m, num_parts=32, method="asepr", layout="vertex-cut", memory_bytes=m * 10)
        for m in (10**8, 10**9)
    ]
    one_part = 32 * (10**9 - 10**8) / 32
    assert plans[1].memory_bytes - plans[0].memory_bytes == pytest.approx(one_part, rel=0.2)
    assert plans[1].disk_bytes == 10 * plans[0].disk_bytes


def test_a_billion_edges_and_67_million_nodes_fit_in_six_gigabytes():
    plan = make_plan(
        num_nodes=2**26, num_edges=2**30, num_parts=32, method="asepr", layout="vertex-cut", memory_bytes=6 * 10**9
    )
    assert plan.form is Form.STREAMING


@pytest.mark.parametrize("method", ["asepr", "hdrf", "dbh", "random", "metis"])
def test_a_budget_that_cannot_work_names_the_least_that_can(method: str):
    with pytest.raises(
        CapacityError, match=r"memory must be at least (\d+) MB for .* got 1 MB; raise --memory"
    ) as caught:
        make_plan(**GRAPH, method=method, layout="vertex-cut", memory_bytes=10**6)
    least = int(str(caught.value).split("at least ")[1].split()[0]) * 10**6
    assert make_plan(**GRAPH, method=method, layout="vertex-cut", memory_bytes=least).memory_bytes <= least
