"""The Kubernetes API as the operator and the gateway use it: one client and one informer."""

from __future__ import annotations

from fleetward_kube.client import KubeClient
from fleetward_kube.errors import KubeError
from fleetward_kube.informer import Informer, WatchTiming, object_key

__all__ = ["Informer", "KubeClient", "KubeError", "WatchTiming", "object_key"]
