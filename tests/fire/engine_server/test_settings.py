"""The command line and the environment, checked against each other."""

from __future__ import annotations

import pytest

from fleetward_engine.errors import ConfigInvalid
from fleetward_engine.settings import ServeSettings, parse_arguments, serve_settings

POD = {
    "POD_NAME": "p", "POD_NAMESPACE": "n", "POD_UID": "u", "POD_IP": "10.0.0.1",
    "FLEETWARD_SERVICE": "n/s", "FLEETWARD_SERVICE_UID": "su",
}  # fmt: skip


def settings(*flags: str, env: dict[str, str] | None = None) -> ServeSettings:
    arguments = parse_arguments(["serve", "--model", "package://llm", *flags])
    return serve_settings(arguments, POD if env is None else env)


def test_a_pod_gets_what_the_operator_set() -> None:
    made = settings(
        "--served-model-name", "one", "--served-model-name", "two", "--runner", "simulated",
        "--no-enable-prefix-caching", "--no-enable-chunked-prefill", "--max-num-seqs", "8",
        "--verify-kv",
    )  # fmt: skip
    assert made.engine.served_model_names == ("one", "two")
    assert not made.engine.enable_prefix_caching
    assert not made.engine.enable_chunked_prefill
    assert made.engine.verify_kv
    assert not settings().engine.verify_kv
    assert made.governance is not None
    assert (made.governance.pod.uid, made.governance.service_uid) == ("u", "su")
    assert (made.ports.public, made.ports.admin, made.ports.metrics) == (8000, 8001, 9090)


def test_numbers_of_the_kv_cache_are_those_of_the_flag() -> None:
    assert settings().engine.kv_cache_dtype == "auto"
    assert settings("--kv-cache-dtype", "int8").engine.kv_cache_dtype == "int8"
    with pytest.raises(ConfigInvalid, match=r"kv_cache_dtype 'int8' needs runner 'torch'"):
        settings("--kv-cache-dtype", "int8", "--runner", "simulated")


def test_a_laptop_needs_to_say_so() -> None:
    assert settings("--insecure-local", env={}).governance is None
    with pytest.raises(ConfigInvalid, match=r"POD_NAME.*--insecure-local"):
        settings(env={})
    with pytest.raises(ConfigInvalid, match="POD_IP"):
        settings(env={**POD, "POD_IP": ""})


def test_insecure_is_refused_in_a_service() -> None:
    with pytest.raises(ConfigInvalid, match="refused where FLEETWARD_SERVICE_UID"):
        settings("--insecure-local")


@pytest.mark.parametrize(
    "flags",
    [
        ("--block-size", "0"),
        ("--max-model-len", "-1"),
        ("--drain-timeout-seconds", "nan"),
        ("--max-num-batched-tokens", "1"),
    ],
)
def test_impossible_values_are_named(flags: tuple[str, str]) -> None:
    with pytest.raises(ConfigInvalid, match=flags[0].lstrip("-").replace("-", ".")):
        settings(*flags)


@pytest.mark.parametrize(
    "argv", [["serve"], ["serve", "--model", "m", "--runner", "magic"], ["serve", "--mod", "m"], []]
)
def test_a_wrong_command_line_exits_with_usage(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_code:
        parse_arguments(argv)
    assert exit_code.value.code == 2
    assert "usage: fleetward-engine" in capsys.readouterr().err
