"""Rules that make metrics of Prometheus queries, in the format of prometheus-adapter's configuration.

    rules:                                       # custom metrics: numbers about objects
    - seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
      seriesFilters: [{isNot: ".*_test$"}]
      resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
      # or resources: {template: "kube_<<.Group>>_<<.Resource>>"}
      name: {matches: "^(.*)_total$", as: "${1}_per_second"}
      metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
    externalRules: [...]                         # the same, for metrics that are about no object

Which metrics there are is found out from the series that exist; how one is asked for, from the rule. Regular
expressions are RE2's, as in Go. A rule that cannot be used is named by its place and leaves the others alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import re2

from kubetide.api.values.codec import parse_yaml
from kubetide.api.values.promql import matcher
from kubetide.errors import InvalidInput

_PLURALS = {"namespace": "namespaces", "node": "nodes", "pod": "pods", "service": "services", "ingress": "ingresses"}
_PLACES = ("<<.Series>>", "<<.LabelMatchers>>", "<<.GroupBy>>")
MOST_RULES = 200
MOST_METRICS = 5000
"""Names that all rules may bring about together."""

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule, checked."""

    place: str
    """Where it stands, for messages: `rules[2]`."""
    series_query: str
    wanted: tuple[Any, ...]
    unwanted: tuple[Any, ...]
    overrides: Mapping[str, str]
    """Plural resource, with its group behind a dot, by label."""
    template: Any
    matches: Any
    name: str
    query: str

    def resources(self, labels: Iterable[str]) -> dict[str, str]:
        """Return the label by resource that a series is about."""
        found = {}
        for label in labels:
            resource = self.overrides.get(label) or self._by_template(label)
            if resource:
                found[resource] = label
        return found

    def metric(self, series: str) -> str:
        """Return the name of the metric that a series becomes; empty if the rule is not about it."""
        if any(not one.search(series) for one in self.wanted) or any(one.search(series) for one in self.unwanted):
            return ""
        found = self.matches.search(series)
        return str(found.expand(self.name)) if found is not None else ""

    def expression(self, series: str, matchers: Sequence[str], group_by: Sequence[str]) -> str:
        """Return the query for one series."""
        filled = (series, ",".join(matchers), ",".join(group_by))
        query = self.query
        for place, text in zip(_PLACES, filled, strict=True):
            query = query.replace(place, text)
        return query

    def _by_template(self, label: str) -> str:
        found = self.template.fullmatch(label) if self.template is not None else None
        return _plural(found.groupdict().get("resource") or "", found.groupdict().get("group") or "") if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How one metric is asked for."""

    rule: Rule
    series: str
    labels: Mapping[str, str]
    """Label by resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The metrics that there are: custom ones by resource and name, external ones by name."""

    custom: Mapping[tuple[str, str], Source] = field(default_factory=dict)
    external: Mapping[str, Source] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A whole configuration, and what of it cannot be used."""

    custom: tuple[Rule, ...] = ()
    external: tuple[Rule, ...] = ()
    problems: tuple[str, ...] = ()


def read_rules(text: str) -> Rules:
    """Read a configuration; raises InvalidInput when it is none."""
    raw = parse_yaml(text, what="metrics rules") or {}
    if not isinstance(raw, dict):
        raise InvalidInput("is not a mapping", subject="metrics rules")
    problems: list[str] = []
    read = {key: _read_all(raw.get(key) or [], key, problems) for key in ("rules", "externalRules")}
    return Rules(custom=read["rules"], external=read["externalRules"], problems=tuple(problems))


def catalog(rules: Rules, found: Mapping[str, Sequence[Labels]]) -> Catalog:
    """Return the metrics that the series of each `seriesQuery` become; the first rule for a name counts."""
    custom: dict[tuple[str, str], Source] = {}
    external: dict[str, Source] = {}
    problems: list[str] = []
    for rule in rules.custom:
        for series, labels in _by_name(found.get(rule.series_query, ())).items():
            metric, resources = rule.metric(series), rule.resources(labels)
            for resource in resources if metric else ():
                custom.setdefault((resource, metric), Source(rule=rule, series=series, labels=resources))
    for rule in rules.external:
        for series, labels in _by_name(found.get(rule.series_query, ())).items():
            if metric := rule.metric(series):
                external.setdefault(metric, Source(rule=rule, series=series, labels=rule.resources(labels)))
    if len(custom) + len(external) > MOST_METRICS:
        problems.append(f"the rules make more than {MOST_METRICS} metrics; the rest is left out")
        custom = dict(list(custom.items())[:MOST_METRICS])
        external = dict(list(external.items())[: MOST_METRICS - len(custom)])
    return Catalog(custom=custom, external=external, problems=tuple(problems))


def object_query(source: Source, resource: str, namespace: str, names: Sequence[str], more: Sequence[str]) -> str:
    """Return the query for objects of one resource; `more` are matchers of the caller's own."""
    matchers = [matcher(source.labels[resource], names)] if names else []
    if namespace and "namespaces" in source.labels and resource != "namespaces":
        matchers.insert(0, matcher(source.labels["namespaces"], (namespace,)))
    return source.rule.expression(source.series, [*matchers, *more], [source.labels[resource]])


def external_query(source: Source, namespace: str, more: Sequence[str], keys: Sequence[str]) -> str:
    """Return the query for an external metric, of one namespace where its series have one."""
    label = source.labels.get("namespaces")
    matchers = [matcher(label, (namespace,))] if label else []
    return source.rule.expression(source.series, [*matchers, *more], sorted(set(keys)) or ["__name__"])


def _by_name(series: Sequence[Labels]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for labels in series:
        name = labels.get("__name__", "")
        if name:
            found.setdefault(name, set()).update(label for label in labels if label != "__name__")
    return found


def _read_all(raw: object, key: str, problems: list[str]) -> tuple[Rule, ...]:
    if not isinstance(raw, list):
        problems.append(f"{key}: is not a list")
        return ()
    rules = []
    for number, one in enumerate(raw[:MOST_RULES]):
        try:
            rules.append(_read(one, f"{key}[{number}]"))
        except InvalidInput as error:
            problems.append(str(error))
    if len(raw) > MOST_RULES:
        problems.append(f"{key}: has more than {MOST_RULES} rules; the rest is left out")
    return tuple(rules)


def _read(raw: object, place: str) -> Rule:
    if not isinstance(raw, dict):
        raise InvalidInput("is not a mapping", subject=place)
    query, series = raw.get("metricsQuery") or "", raw.get("seriesQuery") or ""
    if not isinstance(query, str) or not isinstance(series, str) or not series:
        raise InvalidInput("needs a seriesQuery", subject=place)
    rest = query
    for known in _PLACES:
        rest = rest.replace(known, "")
    if not query or "<<" in rest:
        raise InvalidInput(f"has other places than {', '.join(_PLACES)}", subject=place, field="metricsQuery")
    filters = [one for one in raw.get("seriesFilters") or () if isinstance(one, dict)]
    name, resources = _mapping(raw, "name"), _mapping(raw, "resources")
    matches = _pattern(str(name.get("matches") or ".*"), place, "name.matches")
    return Rule(
        place=place,
        series_query=series,
        wanted=tuple(_pattern(one["is"], place, "seriesFilters") for one in filters if one.get("is")),
        unwanted=tuple(_pattern(one["isNot"], place, "seriesFilters") for one in filters if one.get("isNot")),
        overrides={
            str(label): _plural(str(one.get("resource") or ""), str(one.get("group") or ""))
            for label, one in _mapping(resources, "overrides").items()
            if isinstance(one, dict)
        },
        template=_template(str(resources.get("template") or ""), place),
        matches=matches,
        name=_expansion(str(name.get("as") or ("$1" if matches.groups else "$0"))),
        query=query,
    )


def _mapping(raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = raw.get(key)
    return found if isinstance(found, dict) else {}


def _pattern(text: object, place: str, where: str) -> Any:
    try:
        return re2.compile(str(text))
    except re2.error as error:
        raise InvalidInput(f"{text!r} is no regular expression: {error}", subject=place, field=where) from error


def _template(text: str, place: str) -> Any:
    if not text:
        return None
    escaped = re2.escape(text)
    for name, pattern in (("Group", "(?P<group>[^_]*)"), ("Resource", "(?P<resource>.+)")):
        escaped = escaped.replace(re2.escape(f"<<.{name}>>"), pattern, 1)
    return _pattern(escaped, place, "resources.template")


def _expansion(text: str) -> str:
    r"""Return what Go writes as `$1` or `${1}_x` in the words of Python, `\1` and `\g<1>_x`."""
    return str(re2.sub(r"\$\{?(\d+)\}?", r"\\g<\1>", text.replace("\\", "\\\\")))


def _plural(resource: str, group: str) -> str:
    """Return a resource as paths of custom metrics name it: plural, with its group."""
    if not resource:
        return ""
    name = _PLURALS.get(resource) or (resource if resource.endswith("s") else f"{resource}s")
    return f"{name}.{group}" if group else name
