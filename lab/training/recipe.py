"""The recipe: everything about a training run that is neither the task nor the head."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Recipe(BaseModel):
    """Adam with cosine decay to 0 on the target cross-entropy, and penalty smoothing tau falling to 0.

    Smoothing replaces max(0, x) by tau * softplus(x / tau): a walk that never dips gets no gradient without it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = Field(default=800, ge=1)
    batch: int = Field(default=16, ge=1, description="sequences per seed and step")
    learning_rate: float = Field(default=0.1, gt=0)
    # In the task's own unit. Step t trains at lengths[t % len]; empty means the task's train_length alone.
    lengths: tuple[int, ...] = ()
    smoothing: float = Field(default=1.0, ge=0, description="tau at the first step")
    smoothing_until: float = Field(default=0.5, ge=0, le=1, description="fraction of the steps at which tau is 0")
    initial_scale: float = Field(default=0.05, ge=0, description="std of increments, levels, offsets and gates")
    initial_drift: float = Field(default=0.0, allow_inf_nan=False, description="mean of the increments of a walk")
    content_scale: float = Field(default=1.0, ge=0, description="std of query and key embeddings")
    # Where training starts: at random, or near numbers that are known to do the task (subset-free alone).
    start: Literal["random", "construction"] = "random"
    # A control that must not succeed: every sequence is trained on the targets of the next one of its batch.
    permute_targets: bool = False
    # Freeze a seed whose validation loss stays within this of the optimum at five curve points in a row; 0 is off.
    early_stop: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _another(self) -> Self:
        if self.permute_targets and self.batch < 2:
            raise ValueError("permute_targets: expected a batch of at least 2")
        return self
