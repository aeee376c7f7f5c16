"""Where the API server is and who we are to it: in a pod, or from a kubeconfig."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fleetward_kube.errors import KubeError

_TOKEN_KEY = "BearerToken"  # noqa: S105 - the name of a slot, not a token


async def _no_authorization() -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything needed to open a session to one API server.

    Attributes:
        server: base URL without a trailing slash.
        tls: context with the cluster's CA (and our client certificate); None for plain HTTP.
        authorization: gives the current `Authorization` header value; it re-reads rotated tokens.
        server_hostname: name to check in the server's certificate when it differs from the URL's.
    """

    server: str
    tls: ssl.SSLContext | None = None
    authorization: Callable[[], Awaitable[str | None]] = _no_authorization
    server_hostname: str | None = None


async def load_connection(environ: Mapping[str, str]) -> Connection:
    """The kubeconfig named by `KUBECONFIG`, else the pod's own ServiceAccount.

    Raises:
        KubeError: reason `NotConfigured`, when neither is there or it cannot be read.
    """
    # Imported late: its typed models cost 20 MB, which a test against a plain URL need not pay.
    from kubernetes.aio import config  # noqa: PLC0415
    from kubernetes.aio.client import Configuration  # noqa: PLC0415
    from yaml import YAMLError  # noqa: PLC0415

    configuration = Configuration()
    kubeconfig = environ.get("KUBECONFIG", "")
    try:
        if kubeconfig:
            await config.load_kube_config(
                config_file=kubeconfig, client_configuration=configuration
            )
        else:
            config.load_incluster_config(client_configuration=configuration)
        return _connection_of(configuration)
    except (
        *(config.ConfigException, YAMLError, OSError, ValueError),
        # What the loader says of a file that is YAML and no kubeconfig.
        *(AttributeError, KeyError, TypeError),
    ) as error:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "the pod's ServiceAccount"
        raise KubeError(
            0,
            "NotConfigured",
            f"cannot reach an API server through {where}: {error}; "
            "set KUBECONFIG, or run in a pod that has a ServiceAccount token",
        ) from error


def _connection_of(configuration: Any) -> Connection:
    async def authorization() -> str | None:
        value = await configuration.get_api_key_with_prefix(_TOKEN_KEY)
        if value:
            return str(value)
        if configuration.username:
            return str(configuration.get_basic_auth_token())
        return None

    server = str(configuration.host).rstrip("/")
    tls = _tls_of(configuration) if server.startswith("https") else None
    return Connection(server, tls, authorization, configuration.tls_server_name or None)


def _tls_of(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        # Only ever what the kubeconfig itself asks for with insecure-skip-tls-verify.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
