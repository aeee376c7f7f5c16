"""The list of a service's children, dependencies before dependents."""

from __future__ import annotations

from fleetward_operator.manifests.bundle import build_bundle_configmap
from fleetward_operator.manifests.deployment import build_deployment
from fleetward_operator.manifests.desired import DesiredService
from fleetward_operator.manifests.manifest import Manifest, stamp
from fleetward_operator.manifests.networkpolicy import build_networkpolicy
from fleetward_operator.manifests.pdb import build_pdb
from fleetward_operator.manifests.service import build_service
from fleetward_operator.manifests.serviceaccount import build_serviceaccount
from fleetward_operator.manifests.trust import build_trust


def build_children(desired: DesiredService, *, bundle_json: str | None) -> tuple[Manifest, ...]:
    """All children, each stamped with its hash.

    The NetworkPolicy comes before the Deployment: no engine runs a moment without its walls.
    Without a bundle (its policy is missing) the ConfigMap is left as it is.
    """
    manifests = [
        build_serviceaccount(desired),
        build_networkpolicy(desired),
        build_trust(desired),
    ]
    if bundle_json is not None:
        manifests.append(build_bundle_configmap(desired, bundle_json=bundle_json))
    manifests += [build_service(desired), build_pdb(desired), build_deployment(desired)]
    return tuple(stamp(manifest) for manifest in manifests)
