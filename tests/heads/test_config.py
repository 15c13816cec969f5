"""Configurations: labels both ways, and every mistake in one line with the nearest valid name."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

import lab.heads
from lab.errors import InputError
from lab.heads import LABELS, FoxConfig, FpaConfig, HeadConfig, SoftmaxConfig, head_config
from lab.heads.config import CONFIGS

EXPECTED_LABELS = [
    "softmax-none",
    "softmax-alibi",
    "softmax-relative",
    "softmax-rope",
    "fox-gate0",
    "fox-gate4",
    "fox-relative",
    "fpa-walk-tied",
    "fpa-walk-offset",
    "fpa-walk-free",
    "fpa-direct-tied",
    "fpa-direct-offset",
    "fpa-direct-free",
    "fpa-walk-tied-alibi",
    "fpa-walk-tied-gate",
    "fpa-walk-offset-alibi",
    "fpa-walk-offset-gate",
    "selective-none",
    "selective-relative",
    "selective-rope",
    "selective-same-relative",
    "selective-same-rope",
    "stick-breaking",
    "stick-breaking-strict",
    "softmax2-relative",
    "softmax2-relative-mlp",
    "softmax2-rope",
    "softmax2-rope-mlp",
    "fox2-gate0",
    "fox2-gate0-mlp",
    "fox2-gate4",
    "fox2-gate4-mlp",
]


def test_the_labels_of_the_lab():
    assert list(LABELS) == EXPECTED_LABELS


@pytest.mark.parametrize("label", EXPECTED_LABELS)
def test_labels_and_json_come_back(label):
    config = head_config(label, 3)
    assert config.label == label
    assert config.dim == 3
    assert TypeAdapter(HeadConfig).validate_json(config.model_dump_json()) == config
    assert type(config) is CONFIGS[config.kind]


def test_kinds_are_the_files_of_the_heads():
    assert [config.model_fields["kind"].default for config in CONFIGS.values()] == list(CONFIGS)
    assert CONFIGS["softmax"] is SoftmaxConfig
    assert CONFIGS["fox"] is FoxConfig
    assert CONFIGS["fpa"] is FpaConfig
    assert {options["kind"] for options in LABELS.values()} == CONFIGS.keys() - {"reader"}
    for kind in CONFIGS:
        assert (Path(lab.heads.__file__).parent / f"{kind}.py").is_file()


def test_options_are_kept():
    assert head_config("fpa-walk-tied", 0, penalty_scale=4.0).penalty_scale == 4.0
    assert head_config("fpa-walk-tied", 0).penalty_scale == 1.0
    assert head_config("fox-gate4", 1).gate_bias == 4.0


@pytest.mark.parametrize(
    ("label", "dim", "options", "message"),
    [
        ("fpa-walk-tid", 1, {}, "head: unknown head 'fpa-walk-tid'; did you mean fpa-walk-tied?"),
        ("sofmax-none", 1, {}, "head: unknown head 'sofmax-none'; did you mean softmax-none?"),
        ("zzz", 1, {}, "head: unknown head 'zzz'; valid: fox-gate0, "),
        ("fpa-walk-tied", -1, {}, "head fpa-walk-tied: dim: Input should be greater than or equal to 0"),
        ("fpa-walk-tied", 1.5, {}, "head fpa-walk-tied: dim: Input should be a valid integer"),
        ("fpa-walk-tied", 1, {"penalty_scal": 2}, "penalty_scal: unknown option; did you mean penalty_scale?"),
        ("fox-gate0", 1, {"position": "rope"}, "head fox-gate0: position: unknown option; valid: dim, gate_bias"),
        ("softmax-none", 1, {"kinds": 1}, "head softmax-none: kinds: unknown option; valid: dim, position"),
        ("fpa-walk-tied", 1, {"penalty_scale": 0}, "penalty_scale: Input should be greater than 0"),
        ("fpa-walk-tied", 1, {"penalty_scale": float("inf")}, "penalty_scale: Input should be a finite number"),
    ],
)
def test_mistakes_are_one_line(label, dim, options, message):
    with pytest.raises(InputError) as error:
        head_config(label, dim, **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_configurations_cannot_be_changed_or_extended():
    config = head_config("fox-gate0", 1)
    with pytest.raises(ValidationError):
        config.dim = 2
    with pytest.raises(ValidationError):
        FoxConfig(dim=1, gate=1)


def test_configurations_need_no_torch():
    code = "import sys; from lab.heads import head_config; head_config('fox-gate0', 1); print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
