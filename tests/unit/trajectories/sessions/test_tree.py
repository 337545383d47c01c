"""The token tree of a session."""

from seamlessflow.consumers.trajectories.sessions.tree import ROOT, Node, Tree
from tests.builders.records.content import ids


def grown(tree: Tree, parent: Node | None, end: int, tokens: bytes, origin: str = "tool") -> Node:
    place = ROOT if parent is None else parent.node_id
    node = tree.grow(place, end, origin, "t", 0)
    node.ids += tokens
    return node


def test_a_prompt_is_found_behind_its_turn_also_where_it_forks_inside_another() -> None:
    tree = Tree()
    sampled = grown(tree, None, 0, ids(1, 2), "policy")
    first = grown(tree, sampled, 2, ids(3, 4, 5))
    forked = grown(tree, first, 2, ids(6))
    grown(tree, first, 3, ids(7), "policy")
    assert tree.prompt_behind(sampled, 2, ids(3, 4, 5)) is first
    assert tree.prompt_behind(sampled, 2, ids(3, 4, 6)) is forked
    for other in (ids(3, 4), ids(3, 4, 5, 7), ids(3, 4, 6, 8), ids(3, 6)):
        assert tree.prompt_behind(sampled, 2, other) is None
