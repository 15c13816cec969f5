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


class SelectiveConfig(_Config):
    """Selective Attention (arXiv 2410.02703) under a positional scheme.

    `mask_from`: from which row on a selection counts, the next (as published) or its own. `protect_first`: the first
    token is never selected, as published for a beginning-of-sequence token.
    """

    kind: Literal["selective"] = "selective"
    position: Position = "relative"
    mask_from: Literal["next", "same"] = "next"
    protect_first: bool = False

    @property
    def label(self) -> str:
        return f"selective-{self.position}" if self.mask_from == "next" else f"selective-same-{self.position}"


class StickBreakingConfig(_Config):
    """Stick-breaking attention (arXiv 2410.17980); `attend_current`: the query's own key takes part."""

    kind: Literal["stick_breaking"] = "stick_breaking"
    attend_current: bool = True

    @property
    def label(self) -> str:
        return "stick-breaking" if self.attend_current else "stick-breaking-strict"


class TwoLayerConfig(_Config):
    """Two layers of softmax or FoX heads of this dimension on a residual stream, with or without an MLP between."""

    kind: Literal["two_layer"] = "two_layer"
    layer: Literal["softmax", "fox"] = "softmax"
    position: Position = "none"  # of softmax
    gate_bias: float = 0.0  # of FoX
    mlp: bool = False

    @property
    def label(self) -> str:
        name = f"softmax2-{self.position}" if self.layer == "softmax" else f"fox2-gate{self.gate_bias:g}"
        return f"{name}-mlp" if self.mlp else name


class ReaderConfig(_Config):
    """No head but a reader that knows less than a task asks for, or all of it ("optimum"): what heads are held against.

    Nothing is trained. Which readers a task has is in `lab.heads.reader`.
    """

    kind: Literal["reader"] = "reader"
    dim: int = Field(default=0, ge=0, le=0)
    name: str

    @property
    def label(self) -> str:
        return f"reader-{self.name.replace(' ', '-')}"


HeadConfig = Annotated[
    SoftmaxConfig
    | FoxConfig
    | FoxRelativeConfig
    | FpaConfig
    | FpaRecencyConfig
    | SelectiveConfig
    | StickBreakingConfig
    | TwoLayerConfig
    | ReaderConfig,
    Field(discriminator="kind"),
]
_ADAPTER: TypeAdapter = TypeAdapter(HeadConfig)
# By kind, which is also the name of the head's file.
CONFIGS: dict[str, type[_Config]] = {
    "softmax": SoftmaxConfig,
    "fox": FoxConfig,
    "fox_relative": FoxRelativeConfig,
    "fpa": FpaConfig,
    "fpa_recency": FpaRecencyConfig,
    "selective": SelectiveConfig,
    "stick_breaking": StickBreakingConfig,
    "two_layer": TwoLayerConfig,
    "reader": ReaderConfig,
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
    **{
        f"selective-{name}{position}": {"kind": "selective", "position": position, "mask_from": mask_from}
        for name, mask_from, positions in (
            ("", "next", ("none", "relative", "rope")),
            ("same-", "same", ("relative", "rope")),
        )
        for position in positions
    },
    "stick-breaking": {"kind": "stick_breaking"},
    "stick-breaking-strict": {"kind": "stick_breaking", "attend_current": False},
    **{
        f"softmax2-{position}{name}": {"kind": "two_layer", "position": position, "mlp": mlp}
        for position in ("relative", "rope")
        for name, mlp in (("", False), ("-mlp", True))
    },
    **{
        f"fox2-gate{gate:g}{name}": {"kind": "two_layer", "layer": "fox", "gate_bias": gate, "mlp": mlp}
        for gate in (0.0, 4.0)
        for name, mlp in (("", False), ("-mlp", True))
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
        fields = CONFIGS[LABELS[label]["kind"]].model_fields
        raise InputError(f"head {label}: {option}: unknown option{nearest(option, fields.keys() - {'kind'})}") from None
