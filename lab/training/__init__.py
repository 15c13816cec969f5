"""Training of many seeds at once: the recipe, the ensemble trainer, and the metrics."""

from lab.training.recipe import Recipe

__all__ = ["Recipe"]
