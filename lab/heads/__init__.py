"""The heads that are studied, one per file. Configurations need no torch; `make_head` builds the real thing."""

from typing import TYPE_CHECKING

from lab.heads.config import LABELS, FoxConfig, FpaConfig, HeadConfig, SoftmaxConfig, head_config

if TYPE_CHECKING:
    from lab.heads.base import Head, make_head

__all__ = ["LABELS", "FoxConfig", "FpaConfig", "Head", "HeadConfig", "SoftmaxConfig", "head_config", "make_head"]


def __getattr__(name: str):
    if name in ("Head", "make_head"):
        from lab.heads import base

        return getattr(base, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
