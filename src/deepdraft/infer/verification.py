"""What the target makes of a pass: its tokens, down the trees where there are trees, and the accepted rows' places.

    choose   each request's next tokens
    compact  the rows of accepted drafts right behind the prefix, where they don't lie there already

Output never depends on drafts. Each token is sampled as in plain decoding, a function of the logits of its own path,
the seed and the position; a tree only decides how many are sampled from one pass. Sampling follows the path and
touches no other row, so what depends on the path (penalties, min_tokens) is exact, and drafts cost no draws.

Simulated acceptance dictates the path, down the tree's first chain, whatever the target says.

Shape letters: N rows whose logits are wanted, V vocabulary, n nodes of a tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from deepdraft.infer.commit import Committed
from deepdraft.infer.control.acceptance import Drafts
from deepdraft.infer.control.decision import Decision
from deepdraft.infer.control.plan import Plan
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.request import TokenLogprob
from deepdraft.infer.sampler import Sampled, SamplingRow, sample
from deepdraft.infer.sequence import Part, Sequence
from deepdraft.infer.step_record import Round
from deepdraft.infer.tree.draft_tree import DraftTree
from deepdraft.infer.tree.walk import walk

_SEEDS = 2**32


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Drafted:
    """The parts of a pass, and for each of them its tree; None: no drafts."""

    parts: tuple[Part, ...]
    trees: tuple[DraftTree | None, ...]
    draft_s: float = 0.0
    build_s: float = 0.0
    speculation_s: float = 0.0
    """All that having trees took, deciding who is to draft left out."""
    plan: Plan | None = None
    """What was decided; None: nobody was asked, since these are no decode parts or there is no drafter."""
    drafts: tuple[Drafts | None, ...] = ()
    """With a plan, each part's tree as it was built, before it was cut; None: it wasn't asked, or had no room."""

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """With a plan, what came of it for each part."""
        return self.plan.decisions if self.plan else ()

    @property
    def has_trees(self) -> bool:
        """Whether the pass verifies anything."""
        return any(tree is not None for tree in self.trees)


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """One request's next tokens: at least one."""

    sampled: tuple[Sampled, ...]
    """Of the accepted drafts, then the new bonus token."""
    path: tuple[int, ...] = (0,)
    """Nodes, and rows of the part, that stay: the bonus token's and the accepted drafts'."""


def undrafted(parts: tuple[Part, ...]) -> Drafted:
    """Parts as they were scheduled."""
    return Drafted(parts=parts, trees=(None,) * len(parts))


def choose(drafted: Drafted, logits: Tensor, *, simulated_acceptance_len: float | None = None) -> tuple[Chosen, ...]:
    """The next tokens of each part that wants logits, in order; logits [N, V] as the parts' rows are."""
    wanting = [(part, tree) for part, tree in zip(drafted.parts, drafted.trees, strict=True) if part.num_logit_rows]
    stops = list(accumulate(part.num_logit_rows for part, _ in wanting))
    plain = [place for place, (_, tree) in enumerate(wanting) if tree is None]
    rows = logits if len(plain) == len(logits) else logits[[stops[place] - 1 for place in plain]]
    tokens = sample(rows, [sampling_row(wanting[place][0].sequence) for place in plain]) if plain else ()
    chosen = {place: Chosen((token,)) for place, token in zip(plain, tokens, strict=True)}
    for place, (part, tree) in enumerate(wanting):
        if tree is None:
            continue
        own = logits[stops[place] - part.num_logit_rows : stops[place]]
        if simulated_acceptance_len is None:
            chosen[place] = _walked(part.sequence, tree, own)
        else:
            chosen[place] = _dictated(part.sequence, tree, own, simulated_acceptance_len)
    return tuple(chosen[place] for place in range(len(wanting)))


def compact(parts: Iterable[Part], chosen: Iterable[Chosen], pool: PagePool) -> None:
    """Move the rows of each path, in all layers, right behind the prefix of its request. To be done before num_tokens
    of its page table says what is kept."""
    sources: list[int] = []
    targets: list[int] = []
    for part, tokens in zip(parts, chosen, strict=True):
        table = part.sequence.page_table
        for depth, node in enumerate(tokens.path):
            if node != depth:
                sources.append(table.slot(part.start + node))
                targets.append(table.slot(part.start + depth))
    if sources:
        pool.move(*(torch.tensor(slots, device=pool.device) for slots in (sources, targets)))


def sampling_row(sequence: Sequence, ahead: tuple[int, ...] = ()) -> SamplingRow:
    """What the token is sampled with that comes after the sequence's own and those `ahead`."""
    params = sequence.request.sampling
    num_prompt_tokens = len(sequence.request.prompt_token_ids)
    return SamplingRow(
        params=params,
        seed=sequence.seed,
        position=len(sequence.token_ids) + len(ahead),
        blocked_token_ids=sequence.blocked_token_ids(len(ahead)),
        prompt_token_ids=sequence.distinct_prompt_ids,
        output_token_ids=[*sequence.token_ids[num_prompt_tokens:], *ahead] if params.has_penalties else (),
    )


def rounds(
    drafted: Drafted,
    context_lens: Iterable[int],
    chosen: Iterable[Chosen],
    committed: Iterable[Committed],
    *,
    is_simulated: bool,
) -> tuple[Round | None, ...]:
    """What a decode or verify step was for each of its parts; None: it had no drafts."""
    return tuple(
        Round(
            context_len=context_len,
            num_nodes=tree.num_nodes,
            draft_depth=max(tree.depths),
            accepted_len=len(tokens.path) - 1,
            committed_len=appended.num_tokens,
            is_simulated=is_simulated,
            num_built_nodes=len(drafts.path_probs) if drafts else None,
            decision=decision,
        )
        if tree
        else None
        for tree, drafts, decision, context_len, tokens, appended in zip(
            drafted.trees, *_decided(drafted), context_lens, chosen, committed, strict=True
        )
    )


def _decided(drafted: Drafted) -> tuple[Iterable[Drafts | None], Iterable[Decision | None]]:
    if drafted.plan is None:
        nothing = (None,) * len(drafted.parts)
        return nothing, nothing
    return drafted.drafts, drafted.decisions


def _walked(sequence: Sequence, tree: DraftTree, logits: Tensor) -> Chosen:
    """logits [n + 1, V], a row for each node."""
    sampled: list[Sampled] = []

    def next_token_id(node: int) -> int:
        row = sampling_row(sequence, tuple(token.token_id for token in sampled))
        sampled.extend(sample(logits[node : node + 1], [row]))
        return sampled[-1].token_id

    walked = walk(tree, next_token_id)
    return Chosen(tuple(sampled), walked.path)


def _dictated(sequence: Sequence, tree: DraftTree, logits: Tensor, acceptance_len: float) -> Chosen:
    """As many nodes of the first chain as make `acceptance_len` the mean over the request's rounds, to within one
    token in all; the seed decides where the request begins between two whole numbers. The new bonus token is
    sampled, so that a round costs what it always does."""
    assert sequence.speculation is not None, "only an engine with a drafter simulates acceptance"
    begun = sequence.speculation.num_rounds + sequence.seed % _SEEDS / _SEEDS
    accepted_len = math.floor((begun + 1) * (acceptance_len - 1)) - math.floor(begun * (acceptance_len - 1))
    path = [0]
    while len(path) <= accepted_len and (child := tree.first_children[path[-1]]) > 0:
        path.append(child)
    drafts = tuple(tree.token_ids[node] for node in path[1:])
    bonus = sample(logits[path[-1] : path[-1] + 1], [sampling_row(sequence, drafts)])
    return Chosen((*_as_sampled(sequence, drafts, logits[path[:-1]]), *bonus), tuple(path))


def _as_sampled(sequence: Sequence, drafts: tuple[int, ...], logits: Tensor) -> list[Sampled]:
    if sequence.request.sampling.num_logprobs is None:
        return [Sampled(token_id, None) for token_id in drafts]
    log_probs = logits.log_softmax(dim=-1)
    return [
        Sampled(token_id, TokenLogprob(token_id=token_id, logprob=float(row[token_id])))
        for token_id, row in zip(drafts, log_probs, strict=True)
    ]
