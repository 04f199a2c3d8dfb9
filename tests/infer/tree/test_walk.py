"""A walk accepts what the target would have chosen, no more and no less, and leaves the target's distribution alone.

The toy target's next token depends on all tokens before it; its tables are exact, so most laws are checked by adding
up every way a walk can go.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2
from tree_case import BONUS, Path, any_candidates, candidates, node_path, random_candidates

from deepdraft.infer.tree.build import build_tree
from deepdraft.infer.tree.draft_tree import DraftTree
from deepdraft.infer.tree.marginals import Marginals
from deepdraft.infer.tree.walk import Walk, walk, would_accept

VOCAB_SIZE = 4
#      7 (bonus)
#     1      2
#   3   4    3
TREE = DraftTree.of([BONUS, 1, 2, 3, 4, 3], [-1, 0, 0, 1, 1, 2])


def target_probabilities(prefix: Path) -> list[float]:
    """Of each token after these."""
    generator = random.Random(f"target {prefix}")
    weights = [generator.random() ** 3 + 0.01 for _ in range(VOCAB_SIZE)]
    return [weight / sum(weights) for weight in weights]


def drafts_after(prefix: Path) -> DraftTree:
    """A tree that depends on what is known before the round, and is wrong about the target."""
    seed = random.Random(f"drafter {prefix}").randrange(10_000)
    drafts = random_candidates(draft_len=3, top_k=2, seed=seed)
    token_ids = [random.Random(f"{seed} {depth}").sample(range(VOCAB_SIZE), 2) for depth in range(3)]
    return build_tree(
        BONUS, candidates(drafts.log_probs.tolist(), token_ids), budget=5, is_spine_first=bool(seed % 2)
    )


def committed(tree: DraftTree, taken: Walk) -> Path:
    return (*(tree.token_ids[node] for node in taken.path[1:]), taken.next_token_id)


def every_walk(tree: DraftTree, prefix: Path, node: int = 0) -> Iterator[tuple[Walk, float]]:
    """Each way a walk can go and its probability, from the target's tables."""
    tokens: Path = node_path(tree, node)
    for token_id, probability in enumerate(target_probabilities((*prefix, *tokens))):
        child = tree.child(node, token_id)
        if child is None:
            choices = iter((*tokens, token_id))
            yield walk(tree, lambda _, choices=choices: next(choices)), probability
        else:
            for taken, further in every_walk(tree, prefix, child):
                yield taken, probability * further


@pytest.mark.parametrize(
    ("target", "path", "next_token_id"),
    [
        ({(): 9}, (0,), 9),
        ({(): 1, (1,): 9}, (0, 1), 9),
        ({(): 1, (1,): 4, (1, 4): 1}, (0, 1, 4), 1),
        ({(): 2, (2,): 3, (2, 3): 3}, (0, 2, 5), 3),
        ({(): 2, (2,): 4}, (0, 2), 4),
        ({(): 3}, (0,), 3),  # a draft elsewhere in the tree is no draft here
        ({(): 7}, (0,), 7),  # nor is the bonus token its own successor
    ],
)
def test_it_follows_the_target_as_far_as_the_tree_goes(
    target: dict[Path, int], path: tuple[int, ...], next_token_id: int
) -> None:
    asked = []

    def choose(node: int) -> int:
        asked.append(node)
        return target[node_path(TREE, node)]

    taken = walk(TREE, choose)
    assert taken == Walk(path, next_token_id)
    assert taken.accepted_len == len(path) - 1
    assert tuple(asked) == path  # each node of the path once, in order, and no other


def test_a_bonus_token_alone_is_plain_decoding() -> None:
    assert walk(DraftTree.of([BONUS], [-1]), lambda node: 3) == Walk((0,), 3)


@pytest.mark.parametrize("prefix", [(), (1,), (2, 0), (3, 3, 1)])
def test_committed_tokens_have_the_targets_distribution(prefix: Path) -> None:
    """Added up exactly: any beginning of what a round commits, against the product of the target's own tables."""
    tree = drafts_after(prefix)
    outcomes = [(committed(tree, taken), probability) for taken, probability in every_walk(tree, prefix)]
    assert sum(probability for _, probability in outcomes) == pytest.approx(1)
    for tokens, _ in outcomes:
        for length in range(1, len(tokens) + 1):
            beginning = tokens[:length]
            found = sum(probability for other, probability in outcomes if other[:length] == beginning)
            expected = 1.0
            for index, token_id in enumerate(beginning):
                expected *= target_probabilities((*prefix, *beginning[:index]))[token_id]
            assert found == pytest.approx(expected)


@pytest.mark.parametrize("prefix", [(), (1,), (2, 0)])
def test_a_node_is_passed_with_the_sum_of_its_childrens_target_probabilities(prefix: Path) -> None:
    tree = drafts_after(prefix)
    walks = list(every_walk(tree, prefix))
    for node in range(tree.num_nodes + 1):
        reached = sum(probability for taken, probability in walks if node in taken.path)
        passed = sum(probability for taken, probability in walks if node in taken.path[:-1])
        tokens = [tree.token_ids[child] for child, parent in enumerate(tree.parents) if parent == node]
        probabilities = target_probabilities((*prefix, *node_path(tree, node)))
        assert passed == pytest.approx(reached * sum(probabilities[token_id] for token_id in tokens))


def test_comparing_with_the_drafters_probabilities_would_be_biased() -> None:
    """Accept children one after the other with min(1, p / q), though they are the drafter's likeliest and not drawn
    from it: the first gets 0.83 where the target says 0.5. The walk gives 0.5."""
    p, q = (0.5, 0.3, 0.2), (0.6, 0.3, 0.1)
    compared, rest = [0.0, 0.0, 0.0], 1.0
    for token_id in (0, 1):
        compared[token_id] = rest * min(1, p[token_id] / q[token_id])
        rest -= compared[token_id]
    assert compared[0] == pytest.approx(0.83, abs=0.01)
    tree = DraftTree.of([BONUS, 0, 1], [-1, 0, 0])
    first_tokens = [0.0, 0.0, 0.0]
    for first, second in itertools.product(range(3), repeat=2):
        choices = iter((first, second))
        taken = walk(tree, lambda _, choices=choices: next(choices))
        first_tokens[committed(tree, taken)[0]] += p[first] * p[second]
    assert first_tokens == pytest.approx(p)


def test_rounds_of_drawn_tokens_have_the_targets_distribution() -> None:
    """Chi-square of the first four tokens of 20,000 outputs, each of several rounds with a tree of its own."""
    num_outputs, length = 20_000, 4
    generator = random.Random(11)
    trees: dict[Path, DraftTree] = {}
    cumulated: dict[Path, list[float]] = {}
    counts: Counter[Path] = Counter()
    num_rounds = 0
    for _ in range(num_outputs):
        output: Path = ()
        while len(output) < length:
            tree = trees.get(output) or trees.setdefault(output, drafts_after(output))
            before = output

            def choose(node: int, tree: DraftTree = tree, before: Path = before) -> int:
                prefix = (*before, *node_path(tree, node))
                if prefix not in cumulated:
                    cumulated[prefix] = list(itertools.accumulate(target_probabilities(prefix)))
                return generator.choices(range(VOCAB_SIZE), cum_weights=cumulated[prefix])[0]

            output = (*output, *committed(tree, walk(tree, choose)))
            num_rounds += 1
        counts[output[:length]] += 1
    assert num_rounds < 0.9 * num_outputs * length  # drafts were accepted
    expected = {}
    for tokens in itertools.product(range(VOCAB_SIZE), repeat=length):
        probability = 1.0
        for index, token_id in enumerate(tokens):
            probability *= target_probabilities(tokens[:index])[token_id]
        expected[tokens] = probability * num_outputs
    rare = [tokens for tokens in expected if expected[tokens] < 5]
    bins = [(counts[tokens], expected[tokens]) for tokens in expected if expected[tokens] >= 5]
    bins.append((sum(counts[tokens] for tokens in rare), sum(expected[tokens] for tokens in rare)))
    chi_square = sum((found - wanted) ** 2 / wanted for found, wanted in bins)
    assert chi_square < chi2.ppf(0.999, len(bins) - 1)


@given(drafted=any_candidates(), budget=st.integers(0, 12), data=st.data())
def test_what_is_watched_is_what_a_walk_would_have_accepted(
    drafted: Marginals, budget: int, data: st.DataObject
) -> None:
    """Tokens that go down the tree for a while; however few are known, nothing else is ever said."""
    tree = build_tree(BONUS, drafted, budget=budget)
    chosen = [data.draw(st.sampled_from(sorted({0, *tree.token_ids}))) for _ in range(max(tree.depths) + 1)]
    walked = walk(tree, lambda node: chosen[tree.depths[node]])
    said = [would_accept(tree, chosen[:known]) for known in range(len(chosen) + 1)]
    assert said[-1] == walked.accepted_len
    assert set(said) <= {None, walked.accepted_len}
    assert all(each is None for each in said[: walked.accepted_len])
