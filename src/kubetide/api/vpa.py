"""Objects of this capability, reduced to what kubetide reads."""

from kubetide.api.meta import TypedObject


class VerticalPodAutoscaler(TypedObject, frozen=True, kw_only=True, gc=False):
    pass


class VerticalPodAutoscalerCheckpoint(TypedObject, frozen=True, kw_only=True, gc=False):
    pass
