"""A real Kubernetes on one Linux machine, from Go modules and Debian packages.

One machine carries one cluster (it has one kubelet). Its state and logs live in the git-ignored
folder ``.local/cluster`` of the checkout, what is slow to make (binaries, images) in a cache folder
outside it, sockets and process records in ``/run``. Nothing here reads or writes anybody's
kubeconfig or another cluster.

``python -m e2e.cluster --help`` lists the commands. For tests:

* :func:`start_api_server` starts etcd, the API server and the controller manager alone, without
  root, as often as one likes side by side;
* :func:`load_image` and :func:`image_present` put images into the running cluster.
"""

from __future__ import annotations

from e2e.cluster.apiserver import ApiServer, start_api_server
from e2e.cluster.errors import ClusterError
from e2e.cluster.images import image_present, load_image

__all__ = ["ApiServer", "ClusterError", "image_present", "load_image", "start_api_server"]
