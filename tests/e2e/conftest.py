"""A real control plane for all tests of this folder, started once."""

from collections.abc import Iterator

import pytest

from e2e.controlplane import BinariesMissing, ControlPlane, running


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    try:
        with running(tmp_path_factory.mktemp("control-plane")) as plane:
            yield plane
    except BinariesMissing as error:
        pytest.skip(str(error))
