"""Paths of cgroup files that are remembered: those in use, not those of cgroups that are gone."""

from hypothesis import given
from hypothesis import strategies as st

from kubetide.node.core import files
from kubetide.node.core.layout import Layout
from kubetide.node.host.readers import FEWEST_NEW_PATHS, PathCache

READ = (files.CPU_STAT, files.MEMORY_STAT, files.CPU_PRESSURE)


class CountingLayout(Layout):
    """A layout that counts how many paths were built."""

    built = 0

    def cgroup_file(self, file: files.CgroupFile, directory: str) -> str:
        type(self).built += 1
        return super().cgroup_file(file, directory)


@given(alive=st.integers(1, 300), replaced=st.integers(1, 20), rounds=st.integers(1, 60))
def test_paths_of_cgroups_that_are_gone_are_forgotten(alive: int, replaced: int, rounds: int) -> None:
    layout = Layout(version=2)
    paths = PathCache(layout)
    for turn in range(rounds):
        for number in range(turn * replaced, turn * replaced + alive):
            for file in READ:
                directory = f"kubepods/pod{number}"
                assert paths.path(file, directory) == layout.cgroup_file(file, directory)
    in_use = len(READ) * alive
    assert len(paths) <= 2 * (in_use + FEWEST_NEW_PATHS) + 2 * len(READ) * replaced


def test_a_path_in_use_is_built_once_while_others_come_and_go() -> None:
    CountingLayout.built = 0
    paths = PathCache(CountingLayout(version=2))
    for number in range(20 * FEWEST_NEW_PATHS):
        paths.path(files.CPU_STAT, "kubepods")
        paths.path(files.CPU_STAT, f"kubepods/pod{number}")
    assert CountingLayout.built == 1 + 20 * FEWEST_NEW_PATHS
    assert len(paths) <= 3 * FEWEST_NEW_PATHS
