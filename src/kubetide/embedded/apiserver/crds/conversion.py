"""Conversion webhooks: an object of a custom resource in another of its versions, as the webhook of its CRD makes it.

Objects are kept in the storage version. A reader of another version gets what the webhook makes of them, once per
object and revision; a write is carried out in the version of the request and converted before it is stored. Metadata
stays the server's: of what the webhook answers only labels and annotations count.

A `clientConfig.url` may be `local://NAME`: then the function registered under that name is called, without a socket,
so that conversion works in virtual time.
"""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import msgspec

from kubetide.embedded.apiserver.admission.calls import Conversion
from kubetide.embedded.apiserver.crds.crds import REVIEW_VERSIONS, CrdVersion
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.status import Raw, StatusError
from kubetide.embedded.apiserver.storage.objects import Entry
from kubetide.errors import KubetideError
from kubetide.kube.wire import wire_timeout

LOCAL = "local://"
_SECONDS = 30.0
_GROUP = "apiextensions.k8s.io"

LocalConversion = Callable[[Raw], Awaitable[Raw]]
Post = Callable[[Raw, bytes], Awaitable[bytes]]


class ConversionFailed(KubetideError):
    """A conversion webhook gave no usable answer."""


class Conversions:
    """Asks conversion webhooks."""

    def __init__(self) -> None:
        self._local: dict[str, LocalConversion] = {}
        self._serial = 0
        self.remote: Post | None = None
        """Sends a review to a client configuration over HTTPS; set by the server, absent in virtual time."""

    def register_local(self, name: str, convert: LocalConversion) -> None:
        """Let CRDs whose webhook has the URL `local://NAME` call a function: ConversionReview in and out."""
        self._local[name.removeprefix(LOCAL)] = convert

    async def carry_out(self, call: Conversion) -> Raw | None:
        """Do what a verb asks for: make entries ready to be shown, or an object ready to be stored."""
        if call.obj is not None:
            return await self.store(call.resource, call.obj)
        await self.show(call.resource, call.entries)
        return None

    async def show(self, resource: ApiResource, entries: Sequence[Entry]) -> None:
        """Make entries ready to be shown in the version of a resource."""
        crd = resource.crd
        if crd is None:
            return
        waiting = [entry for entry in entries if not crd.is_ready(entry)]
        if not waiting:
            return
        made = await self._convert(crd, resource.kind, [entry.copy() for entry in waiting], crd.api_version)
        for entry, obj in zip(waiting, made, strict=True):
            entry.prime(crd.api_version, crd.show(obj))

    async def store(self, resource: ApiResource, obj: Raw) -> Raw:
        """Return an object as it is stored."""
        crd = resource.crd
        if crd is None or not crd.converts_to_store():
            return obj
        [stored] = await self._convert(crd, resource.kind, [obj], f"{crd.group}/{crd.storage_version}")
        return crd.stored(stored)

    async def to_version(self, resource: ApiResource, obj: Raw | None) -> Raw | None:
        """Return an object of any version in that of a resource; it may be the object itself."""
        if obj is None or resource.crd is None or not resource.crd.converts(obj):
            return obj
        [made] = await self._convert(resource.crd, resource.kind, [obj], resource.api_version)
        return made

    async def _convert(self, crd: CrdVersion, kind: str, objects: list[Raw], version: str) -> list[Raw]:
        what = f"conversion webhook for {objects[0].get('apiVersion')}, Kind={kind} failed"
        try:
            async with wire_timeout(_SECONDS):
                return await self._ask(crd.webhook or {}, objects, version)
        except TimeoutError:
            raise StatusError(500, "", f"{what}: no answer within {_SECONDS:g} s") from None
        except ConversionFailed as error:
            raise StatusError(500, "", f"{what}: {error}") from error

    async def _ask(self, webhook: Raw, objects: list[Raw], version: str) -> list[Raw]:
        self._serial += 1
        uid = str(UUID(int=self._serial | (0xC0 << 120)))
        spoken = webhook.get("conversionReviewVersions") or ()
        review_version = next((each for each in spoken if each in REVIEW_VERSIONS), REVIEW_VERSIONS[0])
        review: Raw = {
            "kind": "ConversionReview",
            "apiVersion": f"{_GROUP}/{review_version}",
            "request": {"uid": uid, "desiredAPIVersion": version, "objects": objects},
        }
        answer = await self._call(webhook.get("clientConfig") or {}, review)
        return converted(answer, uid, objects, version)

    async def _call(self, client: Raw, review: Raw) -> Raw:
        url = str(client.get("url") or "")
        if url.startswith(LOCAL):
            function = self._local.get(url.removeprefix(LOCAL))
            if function is None:
                raise ConversionFailed(f"no local conversion is registered as {url}")
            try:
                # A copy, as a socket would make it: the webhook may change what it was given.
                return await function(msgspec.json.decode(msgspec.json.encode(review)))
            except ConversionFailed:
                raise
            except KubetideError as error:
                raise ConversionFailed(str(error)) from error
        if self.remote is None:
            raise ConversionFailed("this API server makes no network calls")
        try:
            answer = msgspec.json.decode(await self.remote(client, msgspec.json.encode(review)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConversionFailed(f"the answer is not JSON: {error}") from error
        except KubetideError as error:
            raise ConversionFailed(str(error)) from error
        return answer if isinstance(answer, dict) else {}


def converted(answer: Raw, uid: str, objects: list[Raw], version: str) -> list[Raw]:
    """Return the objects in the answer of a webhook, or say what is wrong with it."""
    response = answer.get("response")
    if answer.get("kind") != "ConversionReview" or not isinstance(response, dict):
        raise ConversionFailed("the answer is not a ConversionReview with a response")
    if response.get("uid") != uid:
        raise ConversionFailed(f"the answer is for another request: {response.get('uid')!r}")
    result = response.get("result") or {}
    if result.get("status") != "Success":
        raise ConversionFailed(str(result.get("message") or "no explanation was given"))
    made = response.get("convertedObjects")
    if not isinstance(made, list) or len(made) != len(objects):
        count = len(made) if isinstance(made, list) else 0
        raise ConversionFailed(f"it returned {count} objects, expected {len(objects)}")
    return [_checked(new, old, version, index) for index, (new, old) in enumerate(zip(made, objects, strict=True))]


def _checked(new: object, old: Raw, version: str, index: int) -> Raw:
    """Return a converted object with the metadata that is the server's to say."""
    where = f"invalid object at index {index}"
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise ConversionFailed(f"{where}: not an object with metadata")
    if new.get("apiVersion") != version:
        raise ConversionFailed(f"{where}: invalid groupVersion (expected {version}, received {new.get('apiVersion')})")
    if new.get("kind") != old.get("kind"):
        raise ConversionFailed(f"{where}: invalid kind (expected {old.get('kind')}, received {new.get('kind')})")
    for field in ("name", "namespace", "uid"):
        if new["metadata"].get(field) != old["metadata"].get(field):
            raise ConversionFailed(f"{where}: metadata.{field} must not be changed")
    metadata = dict(old["metadata"])
    for field in ("labels", "annotations"):
        metadata.pop(field, None)
        if new["metadata"].get(field) is not None:
            metadata[field] = new["metadata"][field]
    return {**new, "metadata": metadata}
