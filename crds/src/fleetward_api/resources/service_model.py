"""What a service serves: the ``model`` part of an InferenceService."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from fleetward_api.resources.base import ApiModel
from fleetward_api.resources.lists import DistinctValues
from fleetward_api.resources.rules import Rule
from fleetward_api.resources.scalars import Digest

SOURCE_FORMS: Final = (
    r"^(package://[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
    r"|file:///[^/].*"
    r"|pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[^/].*"
    r"|(hf|oci|s3)://.+)$"
)
_SOURCE_FORMS: Final = re.compile(SOURCE_FORMS[:-1] + r"\Z")

ModelName: TypeAlias = Annotated[
    str, Field(max_length=128, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._:/-]*[A-Za-z0-9])?$")
]


class ModelSpec(ApiModel):
    """The model, the names it is served under, and where it comes from."""

    name: ModelName
    """The id that clients put into `model`."""
    aliases: Annotated[tuple[ModelName, ...], Field(max_length=16), DistinctValues()] = ()
    """Further ids for the same model."""
    source: Annotated[str, Field(max_length=512, pattern=r"^[a-z0-9]+://[A-Za-z0-9@._~:/+=-]+$")]
    """Where the model lies: `package://DISTRIBUTION` (an installed Python package that holds one
    model), `file:///PATH` inside the engine image, or `pvc://CLAIM/PATH`, a volume claim in the
    service's namespace, mounted read-only. A model is a GGUF file, or the folder of a Hugging Face
    checkpoint: safetensors, config.json and tokenizer.json of the Llama, Mistral or Qwen2
    architecture. Pickled weights are never loaded."""
    digest: Digest | None = None
    """Pins the weights: the engine refuses a model whose digest differs. It is the SHA-256 of the
    GGUF file; of a checkpoint, that of what `sha256sum` prints for its config.json and safetensors
    files in the order of their names. The digest found always stands in the status."""

    rules = (
        Rule(
            cel="!self.source.matches('^(hf|oci|s3)://')",
            message=(
                "spec.model.source with hf://, oci:// or s3:// is not available yet: "
                "use package://, file:// or pvc://"
            ),
            holds=lambda self: not self.source.startswith(("hf://", "oci://", "s3://")),
            field="source",
        ),
        Rule(
            cel=f"self.source.matches('{SOURCE_FORMS}')",
            message=(
                "spec.model.source must be package://DISTRIBUTION, file:///ABSOLUTE/PATH "
                "or pvc://CLAIM/PATH"
            ),
            holds=lambda self: _SOURCE_FORMS.match(self.source) is not None,
            field="source",
        ),
        Rule(
            cel="!(self.source + '/').contains('/../')",
            message="spec.model.source must not climb with '..': write the path itself",
            holds=lambda self: "/../" not in self.source + "/",
            field="source",
        ),
        Rule(
            cel="!has(self.aliases) || !(self.name in self.aliases)",
            message="spec.model.aliases repeats spec.model.name: remove it from the aliases",
            holds=lambda self: self.name not in self.aliases,
            field="aliases",
        ),
    )
