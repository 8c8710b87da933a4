"""Nobody grants what they do not have: who writes a role or a binding must hold every permission in it.

Otherwise whoever may create roles and bindings could make themselves administrator. As in Kubernetes

- writing a Role or ClusterRole takes all its permissions, or the verb `escalate` on it;
- an `aggregationRule`, new or old, takes full authority: it can gather any permission;
- writing a binding takes all permissions of the role it names, where it holds, or the verb `bind` on that role;
- `system:masters` may do everything, and whoever changes finalizers and owner references only grants nothing.

A permission (verb, group, resource, name) is held if a single rule covers it. Rules are products of lists, so for each
value the rules that cover it are kept as a bit mask: a product is covered if the masks of its values have a bit in
common. That stays cheap for roles whose products have millions of members.
"""

from collections.abc import Callable, Iterable, Iterator

from kubetide.embedded.apiserver.auth.rbac import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    GROUP,
    ROLES,
    Attributes,
    Authorizer,
)
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.apiserver.rest.status import Raw, forbidden, not_found

_EVERYTHING: tuple[Raw, ...] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
_FOR_COLLECTION = ("finalizers", "ownerReferences", "managedFields", "resourceVersion", "generation")
_MOST_NAMED = 10


class EscalationCheck:
    """Refuses roles and bindings that grant more than their author has."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def check(self, user: User, resource: ApiResource, new: Raw, old: Raw | None = None) -> None:
        """Refuse to store `new` if it grants what the user does not have; `old` is what it replaces."""
        storage = resource.storage
        if storage.group != GROUP or user.is_master:
            return
        if old is not None and _without_collection(new) == _without_collection(old):
            return
        metadata = new["metadata"]
        namespace, name = str(metadata.get("namespace") or ""), str(metadata["name"])
        if storage in (ROLES, CLUSTER_ROLES):
            if self._may(user, "escalate", storage.plural, namespace, name):
                return
            granted = list(new.get("rules") or ())
            if new.get("aggregationRule") or (old or {}).get("aggregationRule"):
                granted += _EVERYTHING
        elif storage in (BINDINGS, CLUSTER_BINDINGS):
            reference = new.get("roleRef") or {}
            role = str(reference.get("name") or "")
            plural = ROLES.plural if reference.get("kind") == "Role" else CLUSTER_ROLES.plural
            if self._may(user, "bind", plural, namespace, role):
                return
            rules = self._authorizer.rules_of(reference, namespace)
            if rules is None:
                raise not_found(GROUP, plural, role)
            granted = rules
        else:
            return
        missing = list(not_covered(granted, self._authorizer.rules_for(user, namespace)))
        if missing:
            listed = ", ".join(missing[:_MOST_NAMED]) + (", ..." if len(missing) > _MOST_NAMED else "")
            why = f'user "{user.name}" is attempting to grant RBAC permissions not currently held: {listed}'
            raise forbidden(GROUP, storage.plural, name, why)

    def _may(self, user: User, verb: str, plural: str, namespace: str, name: str) -> bool:
        wanted = Attributes(verb=verb, group=GROUP, resource=plural, namespace=namespace, name=name)
        return self._authorizer.allows(user, wanted)


def _without_collection(obj: Raw) -> Raw:
    """Return an object without what the garbage collector changes, and what changes with it."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _FOR_COLLECTION}
    return {**obj, "metadata": metadata}


def not_covered(granted: Iterable[Raw], held: Iterable[Raw]) -> Iterator[str]:
    """Yield, for each rule with a permission that no held rule covers, one such permission."""
    rules = list(held)
    verbs, groups, names = _Index(rules, "verbs"), _Index(rules, "apiGroups"), _Index(rules, "resourceNames")
    resources, paths = _Index(rules, "resources"), _Index(rules, "nonResourceURLs")
    for rule in granted:
        asked = rule.get("verbs") or ()
        missing = _uncovered((asked, verbs.exact), (rule.get("nonResourceURLs") or (), paths.path))
        if missing is not None:
            yield " ".join(missing)
        missing = _uncovered(
            (asked, verbs.exact),
            (rule.get("apiGroups") or (), groups.exact),
            (rule.get("resources") or (), resources.resource),
            (rule.get("resourceNames") or ("",), names.name),
        )
        if missing is not None:
            verb, group, resource, name = missing
            yield f"{verb} {resource}{f'.{group}' if group else ''}{f'/{name}' if name else ''}"


class _Index:
    """Which of the held rules name which values in one of their lists, as bits."""

    def __init__(self, rules: list[Raw], field: str) -> None:
        self._bits: dict[str, int] = {}
        self._unset = 0
        for number, rule in enumerate(rules):
            values = rule.get(field) or ()
            if not values:
                self._unset |= 1 << number
            for value in values:
                self._bits[value] = self._bits.get(value, 0) | 1 << number
        self._any = self._bits.get("*", 0)
        self._prefixes = [(value[:-1], bits) for value, bits in self._bits.items() if value.endswith("*")]

    def exact(self, value: str) -> int:
        return self._any | self._bits.get(value, 0)

    def resource(self, value: str) -> int:
        _, slash, subresource = value.partition("/")
        return self.exact(value) | (self._bits.get(f"*/{subresource}", 0) if slash else 0)

    def path(self, value: str) -> int:
        bits = self.exact(value)
        for prefix, more in self._prefixes:
            if value.startswith(prefix):
                bits |= more
        return bits

    def name(self, value: str) -> int:
        """A rule without names covers every name; only such a rule covers a grant without names."""
        return self._unset | (self._bits.get(value, 0) if value else 0)


def _uncovered(*dimensions: tuple[Iterable[str], Callable[[str], int]]) -> tuple[str, ...] | None:
    """Return a member of the product of all lists that no single rule covers, if there is one."""
    found: dict[int, tuple[str, ...]] = {-1: ()}
    for values, covering in dimensions:
        masks = {covering(value): value for value in values}
        found = {before & mask: (*member, value) for before, member in found.items() for mask, value in masks.items()}
    return found.get(0)
