"""A real API server for the integration tests, with our kinds installed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.apiserver import ApiServer, start_api_server
from tests.support.kinds import install_kinds


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server of its own (etcd, API server, controller manager), ended with the session."""
    server = start_api_server(tmp_path_factory.mktemp("api-server"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def crds_installed(api_server: ApiServer) -> Path:
    """The four kinds, served. The administrator's kubeconfig."""
    asyncio.run(install_kinds(api_server.kubeconfig))
    return api_server.kubeconfig
