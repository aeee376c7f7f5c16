"""What this release refuses, in the words that the author of the manifest reads."""

from __future__ import annotations

import pytest

from fleetward_api.resources import InvalidResource, Resource
from tests.support.refusals import MINIMAL, NOT_YET, REFUSALS, Refusal, words_of_rules
from tests.support.strategies import KINDS, manifest, spec_schema


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_minimal_spec_is_accepted(kind: type[Resource]) -> None:
    assert kind.parse(manifest(kind, MINIMAL[kind])).metadata.name == "generated"


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: f"{each.kind.__name__}-{each.path}")
def test_each_refusal_has_its_words(refusal: Refusal) -> None:
    with pytest.raises(InvalidResource) as caught:
        refusal.kind.parse(manifest(refusal.kind, refusal.spec))
    assert refusal.words in str(caught.value)
    assert caught.value.reason == "InvalidSpec"
    assert not caught.value.retryable


def test_what_is_not_available_yet_says_what_to_do() -> None:
    for refusal in NOT_YET:
        with pytest.raises(InvalidResource) as caught:
            refusal.kind.parse(manifest(refusal.kind, refusal.spec))
        _, advice = str(caught.value).split("is not available yet: ", maxsplit=1)
        assert advice


def test_every_fault_is_told_at_once() -> None:
    kind = KINDS[0]
    spec = {"model": {"name": "m", "source": "hf://a"}, "engine": {"blockSize": 7}, "bogus": 1}
    with pytest.raises(InvalidResource) as caught:
        kind.parse(manifest(kind, spec))
    paths = [fault.path for fault in caught.value.faults]
    assert paths == ["spec.model", "spec.engine.blockSize", "spec.bogus"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_rule_refuses_some_example_all_by_itself(kind: type[Resource]) -> None:
    told: set[str] = set()
    for refusal in REFUSALS:
        if refusal.kind is kind:
            with pytest.raises(InvalidResource) as caught:
                kind.parse(manifest(kind, refusal.spec))
            (fault,) = caught.value.faults
            told.add(fault.message)
    assert words_of_rules(spec_schema(kind)) - told == set()
