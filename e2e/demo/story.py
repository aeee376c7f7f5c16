"""What the demo shows, each part checked: an answer, reuse within one tenant, a proved purge."""

from __future__ import annotations

import json
import secrets
import sys
import time

from e2e.demo.keys import MODEL, DemoKeys
from e2e.demo.place import DemoError, Place
from e2e.demo.waiting import wait_purge
from fleetward_cli.chat import describe
from fleetward_cli.errors import CliError
from fleetward_cli.evidence_source import read_operator_key
from fleetward_cli.gateway import ChatAnswer, ChatRequest, Endpoint, stream_chat

BLOCK_TOKENS = 32
"""The schema's default for ``spec.engine.blockSize``, which the quickstart leaves as it is."""
LEAST_BLOCKS = 4
ANSWER_SECONDS = 120.0
RETRY_SECONDS = 0.5
KINDS = ("tenants", "cachepolicies", "inferenceservices", "cachepurges")
LETTER = """\
Reference {nonce}. A letter to the board of a small library. Dear members, the roof above the
reading room has let the rain in for the third time this year, and the shelves of the travel
section now stand in the hall. The repair of the gutter in spring did not help, because the tiles
around the chimney are broken and the wood below them is soft. A roofer from the next town has
looked at it and asks for nine thousand, half of it before he begins. The town would lend us five
thousand without interest if we open on Saturdays again. Two of our helpers have offered to keep the
desk on that day, and the school asks for the room in the afternoon anyway. I propose that we
accept, sell the old bicycle, and ask the readers for the rest at the summer fair."""
QUESTION = "In one short sentence: what does the letter propose?"


def tell_story(place: Place, keys: DemoKeys) -> None:
    """All parts in order.

    Raises:
        DemoError: a part is not as it should be.
    """
    show_objects(place)
    show_answer(place, keys)
    letter = LETTER.format(nonce=secrets.token_hex(8))
    with place.steps.step("the same long prompt: twice as tenant A, once as tenant B"):
        show_reuse(place, keys, letter)
    with place.steps.step("a purge of tenant A, with evidence"):
        purge_and_verify(place)
    with place.steps.step("the same prompt as tenant A, after the purge"):
        show_gone(place, keys, letter)


def show_objects(place: Place) -> None:
    """``kubectl get`` of our kinds."""
    for kind in KINDS[:-1]:
        words = ["get", f"{kind}.fleetward.io", "--all-namespaces"]
        status = place.show([place.kubectl_program, *words], shown_as=f"kubectl {' '.join(words)}")
        if status != 0:
            raise DemoError(f"kubectl could not show {kind} (status {status})")


def ask(
    place: Place, key: str, question: str, *, system: str, max_tokens: int, live: bool
) -> ChatAnswer:
    """One chat request through the gateway."""
    request = ChatRequest(
        model=MODEL,
        messages=[{"role": "system", "content": system}, {"role": "user", "content": question}],
        max_tokens=max_tokens,
        temperature=0.0,
    )
    return stream_chat(
        Endpoint(place.gateway_url, key), request, on_text=show_text if live else hide_text
    )


def wait_answering(place: Place, key: str) -> None:
    """Ask until an answer comes.

    Right after a restart of the cluster the API server still shows its pods as they were before.

    Raises:
        DemoError: none came in time; with the last refusal.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    words = ""
    while True:
        try:
            ask(place, key, "Hello", system="Answer briefly.", max_tokens=1, live=False)
        except CliError as error:
            if error.message != words:
                words = error.message
                place.steps.tell(f"          not yet: {words}")
        else:
            return
        if time.monotonic() > deadline:
            raise DemoError(f"no answer after {ANSWER_SECONDS:.0f} s: {words}")
        time.sleep(RETRY_SECONDS)


def show_text(text: str) -> None:
    """A piece of the answer, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def hide_text(_: str) -> None:
    """Only the counts matter here."""


def show_answer(place: Place, keys: DemoKeys) -> None:
    """A streamed answer of the model."""
    question = "Name three things that one finds in a kitchen."
    with place.steps.step("a streamed answer through the gateway"):
        place.steps.tell(f"\n  tenant A asks: {question}\n")
        answer = ask(place, keys.a, question, system="Answer briefly.", max_tokens=64, live=True)
        place.steps.tell(f"\n  {describe(answer)}\n")
    if not answer.text.strip():
        raise DemoError("the model's answer is empty")


def show_reuse(place: Place, keys: DemoKeys, letter: str) -> None:
    """Tenant A's second prompt is served from its cache; tenant B's is not."""
    first = report(place, "tenant A, first time ", keys.a, letter)
    again = report(place, "tenant A, again      ", keys.a, letter)
    other = report(place, "tenant B, same prompt", keys.b, letter)
    least = LEAST_BLOCKS * BLOCK_TOKENS
    if first.prompt_tokens < least:
        raise DemoError(f"the prompt has {first.prompt_tokens} tokens, fewer than {least}")
    if again.cached_tokens < least:
        raise DemoError(
            f"tenant A's repeated prompt had {again.cached_tokens} cached tokens, expected {least} "
            "or more: its own cache is not reused"
        )
    if other.cached_tokens != 0:
        raise DemoError(
            f"tenant B's prompt had {other.cached_tokens} cached tokens, expected none: "
            "it reused what another tenant left"
        )


def report(place: Place, who: str, key: str, letter: str) -> ChatAnswer:
    """Ask about the letter and tell the counts."""
    answer = ask(place, key, QUESTION, system=letter, max_tokens=8, live=False)
    place.steps.tell(
        f"          {who}: {answer.cached_tokens:4d} of {answer.prompt_tokens} prompt tokens "
        f"cached, first token after {answer.first_token_seconds:.2f} s"
    )
    return answer


def show_gone(place: Place, keys: DemoKeys, letter: str) -> None:
    """What tenant A had cached is not there any more."""
    answer = report(place, "tenant A, purged     ", keys.a, letter)
    if answer.cached_tokens != 0:
        raise DemoError(
            f"after the purge tenant A's prompt still had {answer.cached_tokens} cached tokens"
        )


def purge_and_verify(place: Place) -> None:
    """Create a CachePurge, wait for it, check its evidence with the operator's key pinned."""
    name = f"demo-{time.time_ns() // 1_000_000}"
    purge = {
        "apiVersion": "fleetward.io/v1alpha1",
        "kind": "CachePurge",
        "metadata": {"name": name},
        "spec": {"tenant": "tenant-a", "reason": "the demo shows a purge", "deadline": "1m"},
    }
    place.kubectl("create", "-f", "-", stdin=json.dumps(purge))
    status = wait_purge(place, name).get("status") or {}
    if status.get("phase") != "Completed":
        raise DemoError(f"the purge ended {status.get('phase')}: {status.get('message')}")
    if not int(status.get("blocks") or 0):
        raise DemoError("the purge removed no block, though tenant A had some cached")
    key = read_operator_key(namespace="fleetward-system", kubeconfig=place.kubeconfig).fingerprint
    words = ["evidence", "verify", "--purge", name, "--key", key]
    argv = [sys.executable, "-m", "fleetward_cli", *words]
    code = place.show(argv, shown_as=f"fleetward {' '.join(words)}")
    if code != 0:
        raise DemoError(f"the purge's evidence was not accepted (exit status {code})")
