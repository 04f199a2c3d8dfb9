from array import array

import pytest

from deepdraft.infer.kv.radix_node import RadixNode


def key(token_ids: list[int]) -> bytes:
    return array("i", token_ids).tobytes()


@pytest.mark.parametrize("page_size", [1, 2, 5])
@pytest.mark.parametrize("num_before", [0, 3])
def test_an_edge_is_followed_for_as_many_pages_as_it_shares(page_size, num_before):
    """Every edge of up to 17 pages, left after every one of its pages: by another token at the end of a page, another
    at its start, or because the key ends."""
    before = [7] * (num_before * page_size)
    for num_pages in range(1, 18):
        edge = list(range(num_pages * page_size))
        node = RadixNode(RadixNode(None, b"", ()), key(edge), tuple(range(num_pages)))
        for num_common in range(1, num_pages + 1):
            shared = before + edge[: num_common * page_size]
            next_page = edge[num_common * page_size :][:page_size]
            for rest in ([], [*next_page[:-1], -1], [-1, *next_page[1:]], [-1] * 40 * page_size):
                whole = len(rest) // page_size * page_size
                assert node.num_common_pages(key(shared + rest[:whole]), len(key(before))) == num_common


def test_a_split_keeps_the_end_in_the_object_that_was_there():
    root = RadixNode(None, b"", ())
    root.last_used = 5
    node = root.add_child(key([1, 2, 3, 4, 5, 6]), (10, 11, 12))
    leaf = node.add_child(key([8, 9]), (13,))
    node.num_locks = 2
    upper = node.split(1)
    assert (upper.key, upper.pages, upper.parent) == (key([1, 2]), (10,), root)
    assert (node.key, node.pages, node.parent) == (key([3, 4, 5, 6]), (11, 12), upper)
    assert (upper.num_locks, upper.num_own_locks, node.num_own_locks) == (2, 0, 2)
    assert (upper.last_used, node.last_used, leaf.last_used) == (5, 5, 5)
    assert root.children == {key([1, 2]): upper}
    assert upper.children == {key([3, 4]): node}
    assert set(root.below()) == {upper, node, leaf}
