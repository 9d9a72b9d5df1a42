import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from asepr.errors import TrainingError  # noqa: E402
from asepr.trainer_plugin.models import StackedModel, keyed_dropout  # noqa: E402


def test_dropout_depends_on_the_node_not_on_its_row():
    nid = torch.arange(1000)
    rows = torch.rand(1000, 64) + 1
    whole = keyed_dropout(rows, nid, (0, 3, 1), 0.5)
    picked = torch.randperm(1000)[:100]
    assert torch.equal(keyed_dropout(rows[picked], nid[picked], (0, 3, 1), 0.5), whole[picked])


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 0.9])
def test_dropout_keeps_the_right_share_and_the_mean(rate: float):
    dropped = keyed_dropout(torch.ones(20000, 50), torch.arange(20000), (1, 2, 0), rate)
    share = (dropped > 0).double()
    assert abs(share.mean() - (1 - rate)) < 0.003
    assert abs(dropped.double().mean() - 1) < 0.02
    # Neither rows nor columns are favoured, nor do columns go together.
    assert (share.mean(0) - (1 - rate)).abs().max() < 0.03
    if rate == 0.5:
        correlation = torch.corrcoef(share.T) - torch.eye(50)
        assert correlation.abs().max() < 0.05


def test_dropout_masks_differ_by_epoch_layer_and_seed():
    rows, nid = torch.ones(500, 20), torch.arange(500)
    masks = [keyed_dropout(rows, nid, key, 0.5) > 0 for key in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))]
    for i, mask in enumerate(masks):
        for other in masks[:i]:
            assert 0.45 < (mask == other).double().mean() < 0.55


def test_unknown_model_lists_the_known():
    with pytest.raises(TrainingError, match="model must be one of sage, sage-sum, gcn, gin, gat, rgcn, got 'foo'"):
        StackedModel("foo", [3, 2])
