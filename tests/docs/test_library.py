"""The front door: its names, its cost, and the examples of its pages."""

import asyncio
import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "library").glob("*.md"))
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)

PUBLIC = {
    "kubetide": "__version__ hpa node recommend replay simulate testing vpa",
    "kubetide.hpa": "HorizontalPodAutoscaler Memory Observation Options Pod PodReading Sample ScaleDecision ScaleView "
    "ValueReading convert decide",
    "kubetide.node": "Batch Plan Snapshot Strategy Write",
    "kubetide.recommend": "Bounds Container LimitPolicy Options Price Prices Row Sizes Usage Workload key_of rows",
    "kubetide.replay": "Followed FollowedService Options Outcome PolicySpec Prices Samples follow follow_services "
    "load_policy read_policy read_samples run",
    "kubetide.simulate": "Options Simulated Variant load_scenario run",
    "kubetide.testing": "Cluster make_config_map make_container make_cron_job make_daemon_set make_deployment make_hpa "
    "make_job make_limit_range make_node make_pdb make_pod make_stateful_set make_vpa virtual_time",
    "kubetide.vpa": "Estimation Options Recommendation Recommender Size Tuning",
}


def examples() -> list[object]:
    found: list[object] = []
    for page in PAGES:
        for number, code in enumerate(CODE.findall(page.read_text()), 1):
            found.append(pytest.param(code, id=f"{page.stem}-{number}"))
    return found


@pytest.mark.parametrize("module", PUBLIC)
def test_the_exported_names_are_those_that_were_promised(module: str) -> None:
    found = importlib.import_module(module)
    assert sorted(found.__all__) == sorted(PUBLIC[module].split())
    for name in found.__all__:
        assert getattr(found, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = found.nothing


@pytest.mark.parametrize("module", [name for name in PUBLIC if name != "kubetide"])
def test_every_exported_name_is_on_its_page(module: str) -> None:
    text = (ROOT / "docs" / "library" / f"{module.rpartition('.')[2]}.md").read_text()
    names = [name for name in PUBLIC[module].split() if not name.startswith("make_")]
    assert [name for name in names if name not in text] == []


def test_importing_kubetide_loads_nothing_else() -> None:
    code = f"import sys, {', '.join(PUBLIC)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    modules = set(loaded.stdout.split())
    assert {name for name in modules if name.startswith("kubetide")} == set(PUBLIC)
    assert modules.isdisjoint({"numpy", "msgspec", "aiohttp", "asyncio"})


def test_the_worked_example_of_a_recommendation_comes_to_its_numbers() -> None:
    page = ROOT / "docs" / "guides" / "how-a-recommendation-is-computed.md"
    blocks = CODE.findall(page.read_text())
    assert len(blocks) == 4
    exec(compile("\n".join(blocks), page.name, "exec"), {"__name__": "example"})


@pytest.mark.parametrize("code", examples())
def test_the_example_runs(code: str) -> None:
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(code, "example", "exec"), names)
    for name, found in names.items():
        if name.startswith("test_"):
            assert callable(found)
            found()


def test_the_notebook_runs_where_a_loop_runs_already() -> None:
    async def notebook() -> dict[str, object]:
        return runpy.run_path(str(ROOT / "examples" / "notebook.py"))

    found = asyncio.run(notebook())
    sizes = found["sizes"]
    assert isinstance(sizes, list)
    assert max(replicas for _, replicas in sizes) == 8
