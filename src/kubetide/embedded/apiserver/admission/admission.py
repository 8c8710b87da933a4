"""Admission webhooks: who is asked, in what order, and what their answers do.

Mutating hooks are asked one after the other, in the order of their configurations' names; a hook that allows it is
asked once more if a later one changed the object. Validating hooks are asked together afterwards. A hook that fails,
answers nonsense or takes too long counts as its failurePolicy says.

A hook's `clientConfig.url` may be `local://NAME`: then the function registered under that name is called, without a
socket, so that webhooks work in virtual time.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from uuid import UUID

import msgspec
from msgspec.structs import replace

from kubetide.api.values.patch import JsonPatch
from kubetide.embedded.apiserver.admission.calls import AdmissionCall
from kubetide.embedded.apiserver.admission.webhooks import Hook, hooks_of, is_exempt
from kubetide.embedded.apiserver.cel.rules import evaluate_conditions
from kubetide.embedded.apiserver.crds.conversion import Conversions
from kubetide.embedded.apiserver.resources import ApiResource, Registry
from kubetide.embedded.apiserver.rest.render import in_version
from kubetide.embedded.apiserver.rest.status import Raw, StatusError, bad_request, internal
from kubetide.embedded.apiserver.rest.strategy import NAMESPACES, deep_copy
from kubetide.embedded.apiserver.storage.objects import ObjectStore, ResourceKey, StoreKey
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.wire import wire_timeout

LOCAL = "local://"
_GROUP = "admissionregistration.k8s.io"
_MUTATING = ResourceKey(_GROUP, "mutatingwebhookconfigurations")
_VALIDATING = ResourceKey(_GROUP, "validatingwebhookconfigurations")

LocalHook = Callable[[Raw], Awaitable[Raw]]
RemoteCall = Callable[[Hook, bytes], Awaitable[bytes]]


class HookFailed(KubetideError):
    """A webhook gave no usable answer."""


class Admission:
    """Asks webhooks about writes."""

    def __init__(self, store: ObjectStore, registry: Registry, conversions: Conversions) -> None:
        self._store = store
        self._registry = registry
        self._conversions = conversions
        self._local: dict[str, LocalHook] = {}
        self._mutating: list[Hook] = []
        self._validating: list[Hook] = []
        self._serial = 0
        self.remote: RemoteCall | None = None
        """Calls a webhook over HTTPS; set by the server, absent in virtual time."""
        self._reload()
        store.listen(lambda resource, event: self._reload(), _MUTATING, _VALIDATING)

    def register_local(self, name: str, hook: LocalHook) -> None:
        """Let webhook configurations with the URL `local://NAME` call a function."""
        self._local[name.removeprefix(LOCAL)] = hook

    def _reload(self) -> None:
        """Read all configurations again."""
        for resource, hooks in ((_MUTATING, self._mutating), (_VALIDATING, self._validating)):
            hooks[:] = [hook for entry in self._store.collection(resource).entries() for hook in hooks_of(entry.obj)]

    def concerns(self, resource: ApiResource) -> bool:
        """Whether any webhook might have to be asked; cheap, because mostly there is none."""
        return bool(self._mutating or self._validating) and not is_exempt(resource)

    async def admit(self, call: AdmissionCall) -> Raw | None:
        """Return the object as webhooks leave it, or raise the error of one that denies it."""
        obj = await self._mutate(call)
        final = call.with_object(obj)
        await self._validate(final)
        return obj

    async def _mutate(self, call: AdmissionCall) -> Raw | None:
        obj = call.obj
        again: list[tuple[Hook, ApiResource]] = []
        changed_by: Hook | None = None
        equivalents = self._equivalents(call)
        for hook in self._mutating:
            resource = await self._wants(hook, call.with_object(obj), equivalents)
            if resource is None:
                continue
            after = await self._ask_to_change(hook, resource, call.with_object(obj))
            if after is not obj:
                obj, changed_by = after, hook
                reinvoked = [pair for pair in again if pair[0] is not hook]
                again = [*reinvoked, *([(hook, resource)] if hook.reinvoke else [])]
            elif hook.reinvoke:
                again.append((hook, resource))
        for hook, resource in again:
            if changed_by is not None and changed_by is not hook:
                obj = await self._ask_to_change(hook, resource, call.with_object(obj))
        return obj

    async def _validate(self, call: AdmissionCall) -> None:
        equivalents = self._equivalents(call)
        asked = [
            (hook, resource)
            for hook in self._validating
            if (resource := await self._wants(hook, call, equivalents)) is not None
        ]
        if not asked:
            return
        denied: list[StatusError] = []

        async def ask(hook: Hook, resource: ApiResource) -> None:
            try:
                await self._ask(hook, resource, call)
            except StatusError as error:
                denied.append(error)

        async with asyncio.TaskGroup() as group:
            for hook, resource in asked:
                group.create_task(ask(hook, resource))
        if denied:
            raise denied[0]

    def _equivalents(self, call: AdmissionCall) -> list[ApiResource]:
        """Return the other versions of what a request is about."""
        return [
            resource
            for resource in self._registry.all()
            if resource.storage == call.resource.storage and resource is not call.resource
        ]

    async def _wants(self, hook: Hook, call: AdmissionCall, equivalents: list[ApiResource]) -> ApiResource | None:
        resource = hook.matched(call, equivalents)
        if resource is None or not hook.selects(call, self._namespace_labels(call)):
            return None
        if hook.conditions:
            try:
                seen = await self._in_version(call, resource)
                if not evaluate_conditions(hook.conditions, self._review(seen, resource)["request"]):
                    return None
            except InvalidInput as error:
                if hook.fails_closed:
                    raise internal(f"matchConditions of webhook {hook.name}: {error}") from error
                return None
        if call.dry_run and not hook.quiet:
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        return resource

    def _namespace_labels(self, call: AdmissionCall) -> dict[str, str] | None:
        if call.resource.storage == NAMESPACES:
            obj = call.obj or call.old or {}
            return dict((obj.get("metadata") or {}).get("labels") or {})
        if not call.namespace:
            return None
        entry = self._store.get(NAMESPACES, StoreKey("", call.namespace))
        return dict(entry.obj["metadata"].get("labels") or {}) if entry is not None else {}

    async def _ask_to_change(self, hook: Hook, resource: ApiResource, call: AdmissionCall) -> Raw | None:
        call, asked = await self._in_version(call, resource), call
        response = await self._ask(hook, resource, call)
        patch = response.get("patch") if response else None
        if not patch or call.obj is None:
            return asked.obj
        try:
            operations = msgspec.json.decode(base64.b64decode(patch))
            shown = self._shown(resource, call, call.obj)
            changed = JsonPatch(tuple(operations)).apply(shown if shown is not None else {})
        except (InvalidInput, binascii.Error, msgspec.DecodeError, TypeError, RecursionError) as error:
            raise internal(f"the patch of admission webhook {hook.name!r} cannot be applied: {error}") from error
        if not isinstance(changed, dict) or not isinstance(changed.get("metadata", {}), dict):
            raise internal(f"the patch of admission webhook {hook.name!r} leaves no object")
        if changed == shown:
            return asked.obj
        return await self._conversions.to_version(asked.resource, self._stored(resource, call, changed))

    async def _in_version(self, call: AdmissionCall, resource: ApiResource) -> AdmissionCall:
        """Return the question about objects of the version the hook asked for, where a webhook has to convert them."""
        if resource.crd is None or resource.crd.webhook is None or call.kind is not None:
            return call
        old = await self._conversions.to_version(resource, call.old)
        return replace(call, obj=await self._conversions.to_version(resource, call.obj), old=old)

    def _shown(self, resource: ApiResource, call: AdmissionCall, obj: Raw | None) -> Raw | None:
        """Return a copy of an object in the version the hook asked for."""
        if obj is None:
            return None
        return deep_copy(obj) if call.kind is not None else in_version(resource, deep_copy(obj))

    def _stored(self, resource: ApiResource, call: AdmissionCall, obj: Raw) -> Raw:
        if call.kind is not None:
            return obj
        if resource.to_storage is not None:
            return resource.to_storage(obj)
        return resource.crd.store(obj) if resource.crd is not None else obj

    async def _ask(self, hook: Hook, resource: ApiResource, call: AdmissionCall) -> Raw:
        """Return the response of a hook, an empty one if it failed and may fail; raise the error of a denial."""
        call = await self._in_version(call, resource)
        review = self._review(call, resource)
        uid = review["request"]["uid"]
        try:
            local = str(hook.client.get("url") or "").startswith(LOCAL)
            async with asyncio.timeout(hook.timeout) if local else wire_timeout(hook.timeout):
                answer = await self._call(hook, review)
            response = _response(answer, uid)
        except (HookFailed, TimeoutError) as error:
            reason = "context deadline exceeded" if isinstance(error, TimeoutError) else str(error)
            if hook.fails_closed:
                raise internal(f'failed calling webhook "{hook.name}": {reason}') from error
            return {}
        call.warnings.extend(str(text) for text in response.get("warnings") or ())
        if not response.get("allowed"):
            raise _denied(hook, response)
        return response

    async def _call(self, hook: Hook, review: Raw) -> Raw:
        url = hook.client.get("url")
        if isinstance(url, str) and url.startswith(LOCAL):
            function = self._local.get(url.removeprefix(LOCAL))
            if function is None:
                raise HookFailed(f"no local webhook is registered as {url}")
            try:
                return await function(review)
            except KubetideError as error:
                raise HookFailed(str(error)) from error
        if self.remote is None:
            raise HookFailed("this API server makes no network calls")
        body = await self.remote(hook, msgspec.json.encode(review))
        try:
            answer = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HookFailed(f"the answer is not JSON: {error}") from error
        if not isinstance(answer, dict):
            raise HookFailed("the answer is not an AdmissionReview")
        return answer

    def _review(self, call: AdmissionCall, resource: ApiResource) -> Raw:
        self._serial += 1
        uid = str(UUID(int=self._serial | (0xAD << 120)))
        group, version, kind = call.kind or (resource.group, resource.version, resource.kind)
        gvk = {"group": group, "version": version, "kind": kind}
        gvr = {"group": resource.group, "version": resource.version, "resource": resource.plural}
        asked = call.resource
        request_kind = (
            gvk if call.kind is not None else {"group": asked.group, "version": asked.version, "kind": asked.kind}
        )
        user = call.request.user
        request: Raw = {
            "uid": uid,
            "kind": gvk,
            "resource": gvr,
            "requestKind": request_kind,
            "requestResource": {"group": asked.group, "version": asked.version, "resource": asked.plural},
            "name": call.name,
            "operation": call.operation,
            "userInfo": {"username": user.name, "groups": list(user.groups), "uid": user.uid},
            "object": self._shown(resource, call, call.obj),
            "oldObject": self._shown(resource, call, call.old),
            "dryRun": call.dry_run,
            "options": deep_copy(call.options),
        }
        if call.subresource:
            request["subResource"] = request["requestSubResource"] = call.subresource
        if call.namespace:
            request["namespace"] = call.namespace
        return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def _response(answer: Raw, uid: str) -> Raw:
    response = answer.get("response")
    if answer.get("kind") != "AdmissionReview" or not isinstance(response, dict):
        raise HookFailed("the answer is not an AdmissionReview with a response")
    if response.get("uid") != uid:
        raise HookFailed(f"the answer is for another request: {response.get('uid')!r}")
    return response


def _denied(hook: Hook, response: Raw) -> StatusError:
    status = response.get("status") or {}
    message = status.get("message") or "no explanation was given"
    code = int(status.get("code") or 403)
    reason = status.get("reason") or ("Forbidden" if code == 403 else "Invalid" if code == 422 else "BadRequest")
    return StatusError(code, reason, f'admission webhook "{hook.name}" denied the request: {message}')
