"""Model sources, the simulated factory and the import walls."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.admin import ModelState
from fleetward_engine.chat_template import ChatTemplate
from fleetward_engine.config import EngineConfig
from fleetward_engine.errors import ChatRefused, ConfigInvalid, ModelUnavailable, ModelUnsupported
from fleetward_engine.factory import build_engine, fingerprint_of
from fleetward_engine.model_source import resolve
from fleetward_engine.tokenizer import ByteTokenizer
from tests.support.engine_core import make_request


def test_a_file_or_a_folder_with_one_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"weights")
    digest = "sha256:" + hashlib.sha256(b"weights").hexdigest()
    for uri in (f"file://{path}", f"file://{tmp_path}"):
        resolved = resolve(uri, digest)
        assert (resolved.path, resolved.model_digest) == (path, digest)


def test_sources_that_hold_no_model_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"a")
    (tmp_path / "b.gguf").write_bytes(b"b")
    with pytest.raises(ModelUnavailable, match=r"exactly one .* a\.gguf, b\.gguf"):
        resolve(f"file://{tmp_path}")
    with pytest.raises(ModelUnavailable, match="no file or folder at /nowhere"):
        resolve("file:///nowhere")
    with pytest.raises(ModelUnavailable, match="no installed package is called 'no-such-model'"):
        resolve("package://no-such-model")
    with pytest.raises(ModelUnavailable, match="found: none"):
        resolve("package://numpy")


@pytest.mark.parametrize("uri", ["", "model", "file://", "hf://repo@rev", "s3://bucket/key"])
def test_other_kinds_of_source_are_refused(uri: str) -> None:
    with pytest.raises(ModelUnsupported):
        resolve(uri)


def test_another_digest_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"new weights under an old name")
    with pytest.raises(ModelUnavailable, match="was pinned"):
        resolve(f"file://{tmp_path}", "sha256:" + "0" * 64)


def simulated(**settings: object) -> EngineConfig:
    base = {"model_uri": "package://m", "served_model_names": ("m",), "runner": "simulated"}
    return EngineConfig(**{**base, **settings})  # type: ignore[arg-type]


def test_the_factory_builds_a_simulated_engine_with_digests() -> None:
    engine, state = build_engine(simulated(kv_cache_memory_bytes=23_040 * 32 * 10), lambda: 0.0)
    assert engine.stats().kv_blocks_total == 10
    assert state.runner == "simulated"
    assert isinstance(state, ModelState)
    fingerprint = fingerprint_of(state)
    assert fingerprint.model_digest.startswith("sha256:")
    assert "simulated" in fingerprint.kv_layout
    engine.add_request(make_request("a", [1]))
    assert engine.has_work


def test_a_pool_of_less_than_a_block_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="not even one"):
        build_engine(simulated(kv_cache_memory_bytes=1), lambda: 0.0)


def test_the_core_and_the_simulated_factory_import_no_torch() -> None:
    code = (
        "import sys, fleetward_engine.factory, fleetward_engine.engine;"
        "from fleetward_engine.config import EngineConfig as C;"
        "fleetward_engine.factory.build_engine(C(model_uri='package://m',"
        "served_model_names=('m',), runner='simulated'));"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(st.text(max_size=50))
def test_the_byte_tokenizer_gives_back_every_text(text: str) -> None:
    tokenizer = ByteTokenizer()
    data = b"".join(tokenizer.token_bytes(token) for token in tokenizer.encode(text))
    assert data == text.encode("utf-8", "replace")


def test_the_byte_tokenizer_marks_turns() -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode_chat([{"role": "user", "content": "hi"}])
    assert ids[0] == tokenizer.TURN
    assert ids.count(tokenizer.TURN) == 2
    assert tokenizer.eos_token_ids <= set(ids)
    assert b"".join(map(tokenizer.token_bytes, ids)) == b"user\nhiassistant\n"
    assert max(ids) < tokenizer.vocab_size


def test_a_chat_template_renders_messages_and_its_own_refusals() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}"
        "{% endif %}{{ bos_token }}{{ m.role }}:{{ m.content | tojson }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    template = ChatTemplate(source, {"bos_token": "<s>"})
    assert template.render([{"role": "user", "content": 'é"'}]) == '<s>user:"é\\""\nassistant:'
    with pytest.raises(ChatRefused, match="no tools"):
        template.render([{"role": "tool", "content": ""}])


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(source: str) -> None:
    with pytest.raises(ChatRefused):
        ChatTemplate(source, {}).render([{"role": "user", "content": ""}])


def test_a_broken_template_is_refused_at_load() -> None:
    with pytest.raises(ModelUnsupported, match="chat template"):
        ChatTemplate("{% for %}", {})


def test_a_folder_under_a_file_s_name_and_a_file_that_cannot_be_read_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gguf"
    path.mkdir()
    with pytest.raises(ModelUnavailable, match=rf"^{path} is a folder: name the \.gguf file"):
        resolve(f"file://{tmp_path}")
    path.rmdir()
    path.write_bytes(b"weights")

    def refuse(at: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(at))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelUnavailable, match=rf"^{path} can't be read, let user \d+ read it"):
        resolve(f"file://{path}")
