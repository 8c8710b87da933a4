"""Access reviews: objects that are only ever created, and whose status is the answer."""

from kubetide.embedded.apiserver.auth.rbac import Attributes, Authorizer
from kubetide.embedded.apiserver.auth.tokens import Tokens
from kubetide.embedded.apiserver.rest.requests import Request, RequestTarget, User
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.rest.verbs import VirtualResources

_AUTHORIZATION = "authorization.k8s.io"
_AUTHENTICATION = "authentication.k8s.io"


class Reviews:
    """Answers who somebody is and what they may do."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def resources(self, tokens: Tokens) -> VirtualResources:
        """Return the review resources, and the tokens of service accounts, with who answers them."""
        return {
            (_AUTHORIZATION, "selfsubjectaccessreviews"): self._self_access,
            (_AUTHORIZATION, "subjectaccessreviews"): self._access,
            (_AUTHORIZATION, "localsubjectaccessreviews"): self._access,
            (_AUTHORIZATION, "selfsubjectrulesreviews"): self._rules,
            (_AUTHENTICATION, "selfsubjectreviews"): self._who,
            (_AUTHENTICATION, "tokenreviews"): tokens.review,
            ("serviceaccounts", "token"): tokens.request_token,
        }

    def _self_access(self, request: Request, target: RequestTarget, body: Raw) -> Raw:
        return self._answer(body, request.user)

    def _access(self, request: Request, target: RequestTarget, body: Raw) -> Raw:
        spec = body.get("spec") or {}
        user = User(str(spec.get("user") or ""), tuple(spec.get("groups") or ()), str(spec.get("uid") or ""))
        return self._answer(body, user)

    def _answer(self, body: Raw, user: User) -> Raw:
        spec = body.get("spec") or {}
        allowed = self._authorizer.allows(user, _attributes(spec))
        status: Raw = {"allowed": allowed}
        if not allowed:
            status["reason"] = "no RBAC rule allows it"
        return {**body, "metadata": body.get("metadata") or {}, "status": status}

    def _rules(self, request: Request, target: RequestTarget, body: Raw) -> Raw:
        namespace = str((body.get("spec") or {}).get("namespace") or "default")
        everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        rules = [everything] if request.user.is_master else list(self._authorizer.rules_for(request.user, namespace))
        status = {
            "resourceRules": [rule for rule in rules if rule.get("resources")],
            "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
            "incomplete": False,
        }
        return {**body, "metadata": body.get("metadata") or {}, "status": status}

    def _who(self, request: Request, target: RequestTarget, body: Raw) -> Raw:
        user = request.user
        info = {"username": user.name, "groups": list(user.groups), "uid": user.uid}
        return {**body, "metadata": body.get("metadata") or {}, "status": {"userInfo": info}}


def _attributes(spec: Raw) -> Attributes:
    path = spec.get("nonResourceAttributes")
    if path:
        return Attributes(verb=str(path.get("verb") or ""), path=str(path.get("path") or ""))
    wanted = spec.get("resourceAttributes") or {}
    return Attributes(
        verb=str(wanted.get("verb") or ""),
        group=str(wanted.get("group") or ""),
        resource=str(wanted.get("resource") or ""),
        subresource=str(wanted.get("subresource") or ""),
        namespace=str(wanted.get("namespace") or ""),
        name=str(wanted.get("name") or ""),
    )
