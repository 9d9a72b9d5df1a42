"""Matrix products in bfloat16, all else as it is."""

import torch
from torch import nn

PRECISIONS = ("float32", "bf16")


class Bf16Linear(nn.Linear):
    """A linear map whose product is taken in bfloat16; weights, input and output are of their own type."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (n, out_features)."""
        with torch.autocast(rows.device.type, torch.bfloat16):
            return super().forward(rows).to(self.weight.dtype)


def lower_products(model: nn.Module) -> None:
    """Let every linear map of a model compute in bfloat16, in place; parameters and their names stay.

    Sums over neighbours, what ranks exchange, the loss, gradients and the optimiser's state keep the model's type.
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                lowered = Bf16Linear(child.in_features, child.out_features, child.bias is not None, device="meta")
                lowered.weight, lowered.bias = child.weight, child.bias
                setattr(parent, name, lowered)
