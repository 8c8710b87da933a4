"""ResourceQuotas: how much of what they allow is in use.

The API server refuses what passes a quota by counting itself; this controller only shows it, as users and those who
size pods read it from the status.
"""

from kubetide.api.objects.resources import format_list
from kubetide.api.values.quantity import ZERO
from kubetide.embedded.apiserver.admission.quotas import QUOTAS, counted, hard_limits
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.base import SimController
from kubetide.embedded.sim.world import PODS


class Quotas(SimController):
    """Keeps quotas counted."""

    name = "resourcequota-controller"

    def watch(self) -> None:
        self.watch_with_pods(QUOTAS)

    async def reconcile(self, key: StoreKey) -> None:
        quota = self.world.get(QUOTAS, key)
        if quota is None:
            return
        hard = hard_limits(quota)
        used = counted(self.world.all(PODS, key.namespace)) if hard else {}
        shown = {name: used.get(name, ZERO) for name in hard}
        self.world.put(QUOTAS, quota, status={"hard": format_list(hard), "used": format_list(shown)})
