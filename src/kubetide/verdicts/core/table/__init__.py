"""Every verdict there is, with its remedy: the one table behind `explain`, `doctor` and the reference page.

A line begins with one or two words in capitals that can be searched for, then the cause. A remedy is a command that
can be pasted. Of verdicts that weigh the same the one further up in the table is told first.
"""

from kubetide.verdicts.core.table.autoscalers import HPA, VPA
from kubetide.verdicts.core.table.cluster import CLUSTER, NODE, WEBHOOK
from kubetide.verdicts.core.table.workloads import PDB, POD, WORKLOAD
from kubetide.verdicts.core.verdict import Verdict

AREAS: dict[str, tuple[Verdict, ...]] = {
    "Horizontal autoscalers": HPA,
    "Vertical autoscalers": VPA,
    "Workloads": WORKLOAD,
    "Pods": POD,
    "Disruption budgets": PDB,
    "Nodes": NODE,
    "The admission webhook": WEBHOOK,
    "The cluster": CLUSTER,
}

TABLE: tuple[Verdict, ...] = tuple(verdict for area in AREAS.values() for verdict in area)
VERDICTS = {verdict.id: verdict for verdict in TABLE}
