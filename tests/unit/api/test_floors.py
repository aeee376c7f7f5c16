"""Floors only grow, and merge as a join."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetward_api.canonical import canonical_bytes, parse_model
from fleetward_api.floors import Floors, merge_floors
from fleetward_api.scope import Scope

TENANTS = st.sampled_from(["a", "ab", "b"])
SCOPES = st.one_of(
    st.builds(Scope, TENANTS),
    st.builds(
        lambda tenant, field, name: Scope(tenant, **{field: name}),
        TENANTS,
        st.sampled_from(["user", "permission_scope", "document_tag"]),
        st.sampled_from(["x", "y"]),
    ),
)
ALL_SCOPES = [
    Scope(tenant, **finer)
    for tenant in ("a", "ab", "b")
    for finer in (
        {},
        *({field: name} for field in ("user", "permission_scope", "document_tag") for name in "xy"),
    )
]
ENTRIES = st.dictionaries(st.sampled_from(["a/x", "a/y", "b/x"]), st.integers(0, 9))
FLOORS = st.builds(
    Floors,
    version=st.integers(0, 9),
    tenants=st.dictionaries(TENANTS, st.integers(0, 9)),
    users=ENTRIES,
    permission_scopes=ENTRIES,
    document_tags=ENTRIES,
)


@given(FLOORS, FLOORS, FLOORS)
def test_merging_is_a_join(a: Floors, b: Floors, c: Floors) -> None:
    assert merge_floors(a, b) == merge_floors(b, a)
    assert merge_floors(a, merge_floors(b, c)) == merge_floors(merge_floors(a, b), c)
    assert merge_floors(a, a) == a.pruned()
    assert merge_floors(a, Floors()) == a.pruned()


@given(FLOORS, FLOORS)
def test_merging_never_lowers_and_invents_nothing(a: Floors, b: Floors) -> None:
    merged = merge_floors(a, b)
    for scope in ALL_SCOPES:
        assert merged.floor_of(scope) == max(a.floor_of(scope), b.floor_of(scope))


@given(FLOORS, SCOPES)
def test_raising_moves_one_floor_up_and_no_other(floors: Floors, scope: Scope) -> None:
    raised = floors.raised(scope)
    assert raised.version == floors.version + 1
    assert raised.floor_of(scope) == floors.floor_of(scope) + 1
    for other in ALL_SCOPES:
        if other == scope:
            continue
        inside = scope.kind == "tenant" and other.tenant == scope.tenant
        lowest = raised.floor_of(scope) if inside else 0
        assert raised.floor_of(other) == max(lowest, floors.floor_of(other))


@given(FLOORS)
def test_pruning_drops_what_says_nothing_and_changes_no_floor(floors: Floors) -> None:
    pruned = floors.pruned()
    assert pruned.pruned() == pruned
    assert pruned.version == floors.version
    for scope in ALL_SCOPES:
        assert pruned.floor_of(scope) == floors.floor_of(scope)
    assert all(floor > pruned.floor_of(Scope(scope.tenant)) for scope, floor in pruned.entries()
               if scope.kind != "tenant")  # fmt: skip


@given(FLOORS)
def test_entries_are_told_by_scope(floors: Floors) -> None:
    told = dict(floors.entries())
    assert len(told) == len(floors.tenants) + floors.finer_count
    for scope in ALL_SCOPES:
        assert max(told.get(scope, 0), told.get(Scope(scope.tenant), 0)) == floors.floor_of(scope)


@given(st.lists(SCOPES, max_size=10), SCOPES, st.lists(SCOPES, max_size=10), SCOPES)
def test_a_floor_tells_exactly_who_was_authorised_before_a_raise(
    earlier: list[Scope], purged: Scope, later: list[Scope], asked: Scope
) -> None:
    """Also for one who knows only that the tenant was raised since, and after a compaction."""
    before = Floors()
    for scope in earlier:
        before = before.raised(scope)
    cut = before.raised(purged)
    after = cut
    for number, scope in enumerate(later):
        after = after.raised(scope)
        if number % 4 == 3:
            after = after.compacted(asked.tenant)
        assert after.floor_of(purged) >= cut.floor_of(purged)
    assert before.floor_of(purged) < cut.floor_of(purged)


@given(st.lists(SCOPES, max_size=10))
def test_a_member_that_missed_a_compaction_judges_as_the_others(purges: list[Scope]) -> None:
    floors = Floors()
    for scope in purges:
        floors = floors.raised(scope)
    now = floors.compacted("a")
    kept = merge_floors(floors, now)
    assert kept == now
    assert _request(kept, "a", "x", ["x", "y"]) == _request(now, "a", "x", ["x", "y"])


def test_the_first_raises_count_from_one() -> None:
    floors = Floors().raised(Scope("a")).raised(Scope("a")).raised(Scope("b", user="x"))
    assert floors == Floors(version=3, tenants={"a": 2}, users={"b/x": 1})
    assert floors.raised(Scope("b")) == Floors(version=4, tenants={"a": 2, "b": 1})


@given(FLOORS)
def test_floors_survive_the_wire(floors: Floors) -> None:
    assert parse_model(Floors, canonical_bytes(floors)) == floors


def _request(floors: Floors, tenant: str, user: str, tags: list[str]) -> tuple[int, int, int, int]:
    return floors.of_request(tenant, user=user, permission_scopes=["x"], document_tags=tags)


@given(st.lists(st.one_of(SCOPES, TENANTS), max_size=12))
def test_no_floors_of_a_request_ever_come_back(steps: list[Scope | str]) -> None:
    """Once a purge or a compaction touched a request, its former root is never made again."""
    floors = Floors()
    seen = {_request(floors, "a", "x", ["x", "y"])}
    for step in steps:
        before = _request(floors, "a", "x", ["x", "y"])
        floors = floors.compacted(step) if isinstance(step, str) else floors.raised(step)
        after = _request(floors, "a", "x", ["x", "y"])
        touched = step == "a" or (
            isinstance(step, Scope)
            and step.tenant == "a"
            and (step.user, step.permission_scope) in {("", ""), ("x", ""), ("", "x")}
        )
        assert (after != before) == touched
        if touched:
            assert after not in seen
            seen.add(after)


@given(st.lists(SCOPES, max_size=8), SCOPES)
def test_a_stale_entry_kept_across_a_compaction_does_not_mask_a_raise(
    purges: list[Scope], last: Scope
) -> None:
    floors = Floors()
    for scope in purges:
        floors = floors.raised(scope)
    stale = floors
    floors = floors.compacted(last.tenant).raised(last)
    assert merge_floors(stale, floors).floor_of(last) > stale.floor_of(last)


@given(FLOORS, TENANTS)
def test_compaction_touches_its_tenant_only(floors: Floors, tenant: str) -> None:
    compacted = floors.compacted(tenant)
    for scope in ALL_SCOPES:
        if scope.tenant != tenant:
            assert compacted.floor_of(scope) == floors.floor_of(scope)
    assert compacted.floor_of(Scope(tenant)) > floors.floor_of(Scope(tenant))


@given(FLOORS, st.integers(0, 4))
def test_bounded_floors_hold_no_more_than_asked(floors: Floors, limit: int) -> None:
    bounded = floors.bounded(limit)
    assert bounded.finer_count <= limit
    if floors.finer_count <= limit:
        assert bounded == floors


def test_each_tag_of_a_request_moves_its_floors() -> None:
    floors = Floors(document_tags={"a/x": 5, "a/y": 3})
    before = _request(floors, "a", "", ["x", "y"])
    after = _request(floors.raised(Scope("a", document_tag="y")), "a", "", ["x", "y"])
    assert before != after
    assert _request(floors, "a", "", ["x", "x"]) == _request(floors, "a", "", ["x"])


def test_a_request_without_a_user_has_no_users_floor() -> None:
    floors = Floors(tenants={"a": 3}, users={"a/x": 4}, permission_scopes={"a/x": 2})
    nobody = floors.of_request("a", user="", permission_scopes=[], document_tags=[])
    somebody = floors.of_request("a", user="x", permission_scopes=["x"], document_tags=[])
    assert (nobody, somebody) == ((3, 0, 0, 0), (3, 4, 3, 0))
