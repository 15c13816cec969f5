"""What computed a result: versions of Python, of the packages that do arithmetic, and the kind of machine."""

import json
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("first-passage-attention-lab", "numpy", "numba", "scipy", "torch", "safetensors")


@cache
def environment() -> str:
    """Canonical JSON with the keys `python`, `platform` and `packages`; equal on equal installations."""
    packages = {name: found for name in PACKAGES if (found := _version(name)) is not None}
    description = {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": packages,
    }
    return json.dumps(description, sort_keys=True)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
