"""On whose behalf an application asks: its user, its session, what its prompt was made of.

The application is who it is by its key, and vouches for these. They only ever narrow what a request
may reuse inside the tenant, and widen what a purge of them finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fleetward_api.openai import CODE_INVALID_VALUE
from fleetward_api.scope import (
    document_tag_digest,
    permission_scope_digest,
    session_digest,
    user_digest,
)
from fleetward_gateway.problem import Problem

USER_HEADER: Final = "Fleetward-User"
SESSION_HEADER: Final = "Fleetward-Session"
TAGS_HEADER: Final = "Fleetward-Document-Tags"
MAX_NAME_CHARS: Final = 128
"""As a CachePurge takes them: what is longer could never be purged by its name."""
MAX_TAGS: Final = 16


@dataclass(frozen=True, slots=True)
class Subject:
    """Names as the application and its key gave them; `""` and empty where they gave none."""

    user: str = ""
    session: str = ""
    permission_scopes: tuple[str, ...] = ()
    document_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubjectDigests:
    """The same as keyed digests: all that an identity tells. A body goes on as it came.

    Attributes:
        permission_scope: of all permission scopes together.
        permission_scopes: of each.
    """

    user: str = ""
    session: str = ""
    permission_scope: str = ""
    permission_scopes: tuple[str, ...] = ()
    document_tags: tuple[str, ...] = ()


def digest_subject(key: bytes, tenant: str, subject: Subject) -> SubjectDigests:
    """Hash a subject's names with the release's `digest.key`."""
    scopes = subject.permission_scopes
    return SubjectDigests(
        user=user_digest(key, tenant, subject.user),
        session=session_digest(key, tenant, subject.user, subject.session),
        permission_scope=permission_scope_digest(key, tenant, scopes),
        permission_scopes=tuple(permission_scope_digest(key, tenant, [each]) for each in scopes),
        document_tags=tuple(
            document_tag_digest(key, tenant, tag) for tag in dict.fromkeys(subject.document_tags)
        ),
    )


def read_name(values: list[bytes], *, header: str) -> str | None:
    """The one name that a header gives; None when it is absent.

    Names are UTF-8 and taken as they stand: nothing in them is decoded or folded.

    Args:
        values: of every occurrence of the header.
        header: its name, for the refusal.

    Raises:
        Problem: 400, it stands twice (whose word would count?), is empty, too long or not UTF-8.
    """
    if not values:
        return None
    if len(values) > 1:
        raise _refusal(header, "stands twice; send it once")
    return _name(values[0], header)


def read_tags(values: list[bytes]) -> tuple[str, ...]:
    """The document tags of a request: a comma-separated list, in one header or several.

    Raises:
        Problem: 400, more than `MAX_TAGS` of them, or one that is no name.
    """
    if not values:
        return ()
    tags = tuple(_name(each, TAGS_HEADER) for value in values for each in value.split(b","))
    if len(tags) > MAX_TAGS:
        raise _refusal(TAGS_HEADER, f"names {len(tags)} tags; send at most {MAX_TAGS}")
    return tags


def check_user(value: object, *, param: str) -> str:
    """The user that a body names in `param`; `""` for null, and for the empty string.

    Raises:
        Problem: 400, it is no text of a usable length that UTF-8 can write.
    """
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARS or not _is_text(value):
        message = f"'{param}' must be valid text of at most {MAX_NAME_CHARS} characters."
        raise Problem(400, CODE_INVALID_VALUE, message, param=param)
    return value


def _is_text(value: str) -> bool:
    """Whether it holds no lone surrogate, which JSON can spell and no CachePurge can name."""
    return not any("\ud800" <= char <= "\udfff" for char in value)


def _name(raw: bytes, header: str) -> str:
    try:
        name = raw.strip(b" \t").decode()
    except UnicodeDecodeError:
        raise _refusal(header, "must be UTF-8") from None
    if not 0 < len(name) <= MAX_NAME_CHARS:
        raise _refusal(header, f"takes names of 1 to {MAX_NAME_CHARS} characters")
    return name


def _refusal(header: str, why: str) -> Problem:
    return Problem(400, CODE_INVALID_VALUE, f"The header {header} {why}.", param=header)
