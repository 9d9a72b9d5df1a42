"""What draws a model that trains apart to the common one: distillation and contrast, as losses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812  # the name the field uses

from asepr.errors import TrainingError

Teacher = Literal["common", "ensemble"]
TEACHERS = ("common", "ensemble")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs:
    """What a model says of some nodes.

    Attributes
    ----------
    logits : (n, classes)
    hidden : list of (m, width)
        Representations after each hidden layer.
    """

    logits: torch.Tensor
    hidden: Sequence[torch.Tensor] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DistillConfig:
    """How much a model is drawn to the answers of the common model of the last round.

    Attributes
    ----------
    logits : float
        Factor of the divergence between softened answers.
    layers : float
        Factor of the squared distance between normalised hidden representations ("cross-layer").
    temperature : float
    teacher : "common" or "ensemble"
        Whose answers: those of the common model, or the mean of those of all ranks' models before they became one,
        which every rank then holds: P models in place of one.

    Notes
    -----
    Source of the ensemble: Lin, Kong, Stich, Jaggi, Ensemble distillation for robust model fusion in federated
    learning, 2020, section 3; there the server is trained, here the ranks are.
    """

    logits: float = 0.5
    layers: float = 0.0
    temperature: float = 2.0
    teacher: Teacher = "common"

    def __post_init__(self) -> None:
        """Check every range.

        Raises
        ------
        TrainingError
            A value is out of its range.
        """
        if not self.logits >= 0 or not self.layers >= 0 or not self.temperature > 0:
            raise TrainingError(
                "distillation must have factors of at least 0 and a positive temperature, got "
                f"{self.logits}, {self.layers} and {self.temperature}; mend the option"
            )
        if self.teacher not in TEACHERS:
            raise TrainingError(
                f"distill_teacher must be one of {', '.join(TEACHERS)}, got '{self.teacher}'; choose one of these"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ContrastConfig:
    """How much representations are drawn to those of the common model, and away from others.

    Attributes
    ----------
    previous : float
        Factor of the model-contrastive term: away from the rank's own model before the last round.
    batch : float
        Factor of the in-batch term: away from the common model's view of other nodes.
    temperature : float
    negatives : int
        Most other nodes in the in-batch term.
    """

    previous: float = 1.0
    batch: float = 0.0
    temperature: float = 0.5
    negatives: int = 256

    def __post_init__(self) -> None:
        """Check every range.

        Raises
        ------
        TrainingError
            A value is out of its range.
        """
        if not self.previous >= 0 or not self.batch >= 0 or not self.temperature > 0 or self.negatives < 1:
            raise TrainingError(
                "contrast must have factors of at least 0, a positive temperature and at least 1 negative, got "
                f"{self.previous}, {self.batch}, {self.temperature} and {self.negatives}; mend the option"
            )


def distillation(own: Outputs, teacher: Outputs, config: DistillConfig) -> torch.Tensor:
    """Return `logits tau^2 KL(teacher || own) + layers sum_l mean |n(h_l) - n(t_l)|^2`.

    Both distributions are softened by tau; n scales a row to length one.

    Notes
    -----
    Source: Hinton, Vinyals, Dean, Distilling the knowledge in a neural network, 2015, section 2.
    """
    tau = config.temperature
    divergence = F.kl_div(
        F.log_softmax(own.logits / tau, 1),
        F.log_softmax(teacher.logits / tau, 1),
        reduction="batchmean",
        log_target=True,
    )
    total = config.logits * tau**2 * divergence
    if config.layers:
        for mine, theirs in zip(own.hidden, teacher.hidden, strict=True):
            distance = (F.normalize(mine, dim=1) - F.normalize(theirs, dim=1)).square().sum(1).mean()
            total = total + config.layers * distance
    return total


def model_contrast(own: torch.Tensor, common: torch.Tensor, previous: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return the mean over rows of `-log(e^(s_c / t) / (e^(s_c / t) + e^(s_p / t)))`, s the cosine to each.

    Notes
    -----
    Source: Li, He, Song, Model-contrastive federated learning, 2021, equation 3.
    """
    towards, away = (F.cosine_similarity(own, other, dim=1) / temperature for other in (common, previous))
    return F.softplus(away - towards).mean()


def batch_contrast(own: torch.Tensor, common: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return the mean over rows i of `-log(e^(s_ii / t) / sum_j e^(s_ij / t))`, s the cosine of own i to common j.

    Notes
    -----
    Source: van den Oord, Li, Vinyals, Representation learning with contrastive predictive coding,
    2018, equation 4.
    """
    similarity = F.normalize(own, dim=1) @ F.normalize(common, dim=1).T / temperature
    return F.cross_entropy(similarity, torch.arange(len(own), device=own.device))


def contrast(own: Outputs, common: Outputs, previous: Outputs | None, config: ContrastConfig) -> torch.Tensor:
    """Return the sum over layers of both contrasts; without a previous model only of the in-batch one."""
    total = own.logits.new_zeros(())
    for layer, (mine, theirs) in enumerate(zip(own.hidden, common.hidden, strict=True)):
        if config.previous and previous is not None:
            total = total + config.previous * model_contrast(mine, theirs, previous.hidden[layer], config.temperature)
        if config.batch:
            rows = slice(config.negatives + 1)
            total = total + config.batch * batch_contrast(mine[rows], theirs[rows], config.temperature)
    return total
