"""The YAML file of settings: one section per component, beside `kube` and `process`.

A file may serve several processes, so sections of components that do not run here are fine; a section that nobody
knows is a typing error and refused, as is an unknown setting within a section that is read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubetide.api.values.codec import parse_yaml
from kubetide.config import load
from kubetide.errors import DecodeError, SettingsError
from kubetide.settings import SECTIONS, ProcessSettings

Sections = dict[str, dict[str, Any]]


def read_process(flags: Mapping[str, str], env: Mapping[str, str]) -> tuple[ProcessSettings, Sections]:
    """Return the settings of the process and the sections of the file that they name."""
    named = load(ProcessSettings, flags=flags, env=env)
    sections = read_file(named.config)
    return load(ProcessSettings, flags=flags, env=env, file=sections.get("process")), sections


def read_file(path: str) -> Sections:
    """Read the YAML file of settings, if one is named."""
    if not path:
        return {}
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot be read: {error.strerror}", subject=path) from error
    try:
        raw = parse_yaml(data, what=path)
    except DecodeError as error:
        raise SettingsError(error.message, subject=error.subject, field=error.field) from error
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise SettingsError("must hold sections such as hpa: and kube:", subject=path)
    sections: Sections = {}
    for name, section in raw.items():
        if name not in SECTIONS:
            raise SettingsError(f"unknown section (known: {', '.join(SECTIONS)})", subject=path, field=str(name))
        if section is not None and not isinstance(section, dict):
            raise SettingsError("must hold settings by name", subject=path, field=str(name))
        sections[name] = {str(key): value for key, value in (section or {}).items()}
    return sections
