"""CustomResourceDefinitions as package data: `kubetide up`, `kubetide manifests` and tests install them from here."""

from importlib.resources import files
from typing import Any

import yaml


def names() -> tuple[str, ...]:
    """Return the plural names of all CRDs."""
    return tuple(
        sorted(entry.name.removesuffix(".yaml") for entry in files(__name__).iterdir() if entry.name.endswith(".yaml"))
    )


def text(name: str) -> str:
    """Return the manifest of one CRD as it is written."""
    return files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """Return the manifest of one CRD as a raw object."""
    loaded: dict[str, Any] = yaml.load(text(name), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return loaded


def load_all() -> tuple[dict[str, Any], ...]:
    """Return all CRDs as raw objects."""
    return tuple(load(name) for name in names())
