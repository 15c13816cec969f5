"""What a head is asked to be, without torch: configurations, their labels, and the way back from a label."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from lab.errors import InputError, nearest

Position = Literal["none", "alibi", "relative", "rope"]
FieldForm = Literal["walk", "direct"]
LevelForm = Literal["tied", "offset", "free"]
SumDtype = Literal["float64", "float32"]
Recency = Literal["alibi", "gate"]


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    # Content dimension of query and key vectors; 0 leaves only what the positions and the forgetting say.
    dim: int = Field(ge=0, le=4096)


class SoftmaxConfig(_Config):
    """Softmax attention with a positional scheme: none, ALiBi, learned relative bias, or RoPE."""

    kind: Literal["softmax"] = "softmax"
    position: Position = "none"

    @property
    def label(self) -> str:
        return f"softmax-{self.position}"


class FoxConfig(_Config):
    """Forgetting attention (arXiv 2503.02130); `gate_bias` is where the pre-sigmoid gates start."""

    kind: Literal["fox"] = "fox"
    gate_bias: float = 0.0

    @property
    def label(self) -> str:
        return f"fox-gate{self.gate_bias:g}"


class FoxRelativeConfig(FoxConfig):
    """Forgetting attention with one learned bias per distance besides its gates."""

    kind: Literal["fox_relative"] = "fox_relative"  # type: ignore[assignment]

    @property
    def label(self) -> str:
        return "fox-relative"


class FpaConfig(_Config):
    """First Passage Attention: the form of its field and of its levels, and the fixed penalty scale lambda.

    `sum_dtype` is what a walk is summed in; float32 is there to measure what it costs at length.
    """

    kind: Literal["fpa"] = "fpa"
    field: FieldForm = "walk"
    level: LevelForm = "tied"
    penalty_scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    sum_dtype: SumDtype = "float64"

    @property
    def label(self) -> str:
        return f"fpa-{self.field}-{self.level}"


class FpaRecencyConfig(FpaConfig):
    """First Passage Attention with a recency bias; `gate_bias` is where gates start, if the bias is one of gates."""

    kind: Literal["fpa_recency"] = "fpa_recency"  # type: ignore[assignment]
    recency: Recency = "alibi"
    gate_bias: float = 0.0

    @property
    def label(self) -> str:
        return f"fpa-{self.field}-{self.level}-{self.recency}"


HeadConfig = Annotated[
    SoftmaxConfig | FoxConfig | FoxRelativeConfig | FpaConfig | FpaRecencyConfig, Field(discriminator="kind")
]
_ADAPTER: TypeAdapter = TypeAdapter(HeadConfig)
_CONFIGS: dict[str, type[_Config]] = {
    "softmax": SoftmaxConfig,
    "fox": FoxConfig,
    "fox_relative": FoxRelativeConfig,
    "fpa": FpaConfig,
    "fpa_recency": FpaRecencyConfig,
}

LABELS: dict[str, dict[str, Any]] = {
    **{f"softmax-{p}": {"kind": "softmax", "position": p} for p in ("none", "alibi", "relative", "rope")},
    **{f"fox-gate{g:g}": {"kind": "fox", "gate_bias": g} for g in (0.0, 4.0)},
    "fox-relative": {"kind": "fox_relative"},
    **{
        f"fpa-{field}-{level}": {"kind": "fpa", "field": field, "level": level}
        for field in ("walk", "direct")
        for level in ("tied", "offset", "free")
    },
    **{
        f"fpa-walk-{level}-{recency}": {"kind": "fpa_recency", "level": level, "recency": recency}
        for level in ("tied", "offset")
        for recency in ("alibi", "gate")
    },
}


def head_config(label: str, dim: int, **options: Any) -> HeadConfig:
    """The configuration named by a label such as "fpa-walk-tied", with that content dimension.

    Raises InputError for an unknown label (the nearest valid one is offered) or option, or a negative dimension.
    """
    if label not in LABELS:
        raise InputError(f"head: unknown head {label!r}{nearest(label, LABELS)}")
    try:
        return _ADAPTER.validate_python({**LABELS[label], "dim": dim, **options})
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(str(part) for part in first["loc"][1:])
        if first["type"] != "extra_forbidden":
            raise InputError(f"head {label}: {option}: {first['msg']}") from None
        fields = _CONFIGS[LABELS[label]["kind"]].model_fields
        raise InputError(f"head {label}: {option}: unknown option{nearest(option, fields.keys() - {'kind'})}") from None
