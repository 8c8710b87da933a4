"""Flags that click does not read: those of `run` and `node` are upstream's, in Go's syntax.

The options that stand before every verb may stand among them too, as people type them for kubectl: they are taken out
first, unless a component has a flag of that name.
"""

from typing import Any

import click

from kubetide.cli.completion import Known
from kubetide.cli.main import Invocation
from kubetide.config import Option
from kubetide.errors import SettingsError
from kubetide.log import get_logger

log = get_logger("run")


def global_words(word: str) -> int:
    """Return how many words an option about the cluster takes; 0 for anything else."""
    name, equals, _ = word.partition("=")
    if name in ("-A", "--all-namespaces"):
        return 1
    return (1 if equals else 2) if name in ("-n", "--namespace", "-o", "--output", "--kubeconfig", "--context") else 0


def take_globals(invocation: Invocation, flags: tuple[str, ...], known: Known) -> tuple[Invocation, tuple[str, ...]]:
    """Take -n, -A and -o out of flags that click does not read; a name that a component has stays the component's."""
    theirs = {name for found in known.values() for option in found for name in (option.flag, *option.aliases)}
    names = {"n": "namespace", "namespace": "namespace", "o": "output", "output": "output"}
    switches = {"A", "all-namespaces"}
    given: dict[str, Any] = {}
    kept: list[str] = []
    rest = list(flags)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name in theirs:
            kept.append(word)
        elif name in switches:
            given["all_namespaces"] = True
        elif name in names:
            if not equals and not rest:
                raise SettingsError("a value must follow", field=f"flag {word}")
            given[names[name]] = value if equals else rest.pop(0)
        else:
            kept.append(word)
    return invocation.with_options(given), tuple(kept)


_NAMESPACE_FLAGS = {
    "hpa": "hpa-namespace",
    "recommender": "vpa-object-namespace",
    "updater": "vpa-object-namespace",
    "admission": "vpa-object-namespace",
}


def within_namespace(invocation: Invocation, name: str, flags: dict[str, str]) -> dict[str, str]:
    """Add the namespace of -n to the flags of a component, where no flag of its own says otherwise."""
    if not invocation.namespace or invocation.all_namespaces:
        return flags
    if name not in _NAMESPACE_FLAGS:
        log.warning("-n is ignored: this component looks at the whole cluster", component=name)
        return flags
    return {_NAMESPACE_FLAGS[name]: invocation.namespace, **flags}


def asks_for_help(flags: tuple[str, ...]) -> bool:
    """Whether help is asked for among flags that click does not read."""
    return any(flag in ("-h", "--help", "-help") for flag in flags)


def describe_flags(known: Known) -> str:
    """Return the flags as help shows them, section by section; what several sections share is shown once."""
    formatter = click.HelpFormatter()
    shown: set[str] = set()
    for section, found in known.items():
        fresh = [option for option in found if option.flag not in shown]
        shown.update(option.flag for option in fresh)
        release = next((option.show(option.default) for option in found if option.flag == "compat"), "")
        with formatter.section(f"Flags of {section}" + (f" (behaves like release {release})" if release else "")):
            formatter.write_dl([(f"--{option.flag}", _described(option)) for option in fresh])
    return "\n" + formatter.getvalue()


def _described(option: Option) -> str:
    default = option.show(option.default)
    return f"{option.doc}  [default: {default}]" if default else option.doc
