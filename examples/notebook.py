# %% [markdown]
# # How large should the shop be?
#
# A session as in a notebook; each `# %%` begins a cell (Jupyter, VS Code and PyCharm open it as one). It also runs as
# a program: `python examples/notebook.py`.

# %%
from datetime import UTC, datetime, timedelta

from kubetide.testing import Cluster, make_deployment, make_hpa, virtual_time
from kubetide.vpa import Recommender

# %% [markdown]
# An hour with a peak in its middle, on a cluster that exists only here. The call blocks for a second or two, also where
# an event loop runs already.


# %%
@virtual_time
async def hour() -> list[tuple[int, int]]:
    sizes = []
    async with Cluster(nodes=3, seed=1) as cluster:
        await cluster.apply(
            make_deployment("web", replicas=2, cpu="500m"), make_hpa("web", target="web", maximum=8, cpu_percent=60)
        )
        await cluster.start("hpa")
        for minute in range(60):
            cluster.set_load("web", 250 if 20 <= minute < 35 else 60)
            await cluster.run_for(timedelta(minutes=1))
            sizes.append((minute, cluster.get("Deployment", "web")["spec"]["replicas"]))
    return sizes


sizes = hour()
for minute, replicas in sizes[::5]:
    print(f"{minute:3} min  {'#' * replicas}")

# %% [markdown]
# And how big should each container be? Samples of a week give an answer without any cluster.

# %%
monday = datetime(2026, 1, 5, tzinfo=UTC)
recommender = Recommender()
recommender.add_all("web", ((monday + timedelta(minutes=n), 100 + n % 200, 300 * 2**20) for n in range(7 * 1440)))
size = recommender.recommend()["web"]
print(f"request {size.target.cpu_millis}m CPU and {size.target.memory_bytes / 2**20:.0f} MiB")
