"""Names of types become parts of paths, so what they may hold is checked."""

import pytest

from asepr.errors import ShardError
from asepr.exporters.graph_types import _check_names


@pytest.mark.parametrize("name", ["../up", "..", ".hidden", "a/b", "a:b", "a\\b", "", "a\0"])
def test_names_that_leave_their_folder_are_refused(name: str):
    with pytest.raises(ShardError, match="type names must be without"):
        _check_names({name})


def test_usual_names_pass():
    _check_names({"_N", "type_0", "built_from", "rev-cites", "name with spaces", "v1.2"})
