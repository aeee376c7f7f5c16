"""Archives for containerd: whole, or without the layers that it has."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from e2e.cluster.errors import ClusterError
from e2e.images.buildah import mounts_below
from e2e.images.export import Exported, LayerFolder, adopt, build_manifest, encode, layer_digests
from e2e.images.load import unused, write_archive


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture
def layers(tmp_path: Path) -> LayerFolder:
    return LayerFolder(tmp_path)


@pytest.fixture
def exported(layers: LayerFolder) -> Exported:
    """An image of two layers."""
    contents = (b"dependencies" * 100, b"our code")
    for content in contents:
        layers.path(digest(content)).write_bytes(content)
    digests = tuple(digest(content) for content in contents)
    config = encode({"os": "linux", "rootfs": {"type": "layers", "diff_ids": list(digests)}})
    return Exported("fleetward.local/engine:1", config, digests)


def archive(exported: Exported, layers: LayerFolder, *, known: set[str]) -> dict[str, bytes]:
    buffer = io.BytesIO()
    write_archive(buffer, exported, layers=layers, skip=known.__contains__)
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as tar:
        return {
            entry.name: content.read()
            for entry in tar
            if (content := tar.extractfile(entry)) is not None
        }


def test_every_blob_lies_under_its_digest(exported: Exported, layers: LayerFolder) -> None:
    files = archive(exported, layers, known=set())
    blobs = {name: data for name, data in files.items() if name.startswith("blobs/")}
    assert len(blobs) == 4  # manifest, configuration, two layers
    for name, data in blobs.items():
        assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"


def test_index_manifest_and_layers_point_to_each_other(
    exported: Exported, layers: LayerFolder
) -> None:
    files = archive(exported, layers, known=set())
    (named,) = json.loads(files["index.json"])["manifests"]
    assert named["annotations"]["io.containerd.image.name"] == exported.reference
    manifest = json.loads(files[f"blobs/{named['digest'].replace(':', '/')}"])
    for part in (manifest["config"], *manifest["layers"]):
        data = files[f"blobs/{part['digest'].replace(':', '/')}"]
        assert len(data) == part["size"]
    config = json.loads(files[f"blobs/{manifest['config']['digest'].replace(':', '/')}"])
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]


def test_known_layers_are_left_out_and_still_named(exported: Exported, layers: LayerFolder) -> None:
    whole = archive(exported, layers, known=set())
    thin = archive(exported, layers, known={exported.layers[0]})
    left_out = f"blobs/{exported.layers[0].replace(':', '/')}"
    assert whole.keys() - thin.keys() == {left_out}
    assert thin["index.json"] == whole["index.json"]


def test_the_same_image_gives_the_same_manifest(exported: Exported, layers: LayerFolder) -> None:
    assert build_manifest(exported, layers=layers) == build_manifest(exported, layers=layers)


def test_only_wanted_layers_are_kept(exported: Exported, layers: LayerFolder) -> None:
    layers.keep_only({exported.layers[1]})
    assert layers.missing(exported.layers) == [exported.layers[0]]


def test_a_layer_is_adopted_whole_or_not_at_all(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    adopt(source, target)
    assert not target.exists()
    source.write_bytes(b"layer")
    (tmp_path / "target.partial").write_bytes(b"half of an earlier try")
    adopt(source, target)
    assert target.read_bytes() == b"layer"
    assert not (tmp_path / "target.partial").exists()


def test_a_damaged_configuration_is_refused() -> None:
    with pytest.raises(ClusterError, match="rootfs"):
        layer_digests({"os": "linux"})


def test_mounts_of_the_storage_and_no_others_are_found() -> None:
    table = (
        "/dev/vda / ext4 rw 0 0\n"
        "/dev/vda /cache/storage/overlay ext4 rw 0 0\n"
        "overlay /cache/storage/overlay/ab/merged overlay rw 0 0\n"
        "overlay /cache/storage-of-another/merged overlay rw 0 0\n"
    )
    found = mounts_below(Path("/cache/storage"), table=table)
    assert found == ["/cache/storage/overlay", "/cache/storage/overlay/ab/merged"]


def test_earlier_builds_go_and_nothing_else() -> None:
    images = ["x/engine:1", "x/engine:2", "x/engine:1-fault", "x/engine-deps:1", "pause:1"]
    assert unused(images, wanted=("x/engine:2", "x/operator:2")) == [
        "x/engine:1",
        "x/engine:1-fault",
    ]
