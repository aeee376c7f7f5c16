"""The product's two container images: build them with buildah, bring them into the local cluster.

``python -m e2e.images --help`` lists the commands. An image's tag is the hash of all that goes into
it, so that the same inputs are never built or imported twice:

* ``fleetward.local/base``: Debian with Python, made by debootstrap (a stand-in for the public base
  image that ``operator/Dockerfile`` and ``engine-image/Dockerfile`` name by default);
* ``fleetward.local/operator-deps`` and ``engine-deps``: everything but our own code;
* ``fleetward.local/operator`` and ``engine``: one small layer of our own code on top.

A change of our code rebuilds that one layer, and the import sends containerd only the layers that
it lacks.
"""

from __future__ import annotations

from e2e.images.build import build_images
from e2e.images.load import load_images
from e2e.images.plan import ImageSet

__all__ = ["ImageSet", "build_images", "load_images"]
