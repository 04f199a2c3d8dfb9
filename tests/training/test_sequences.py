"""Sequences are a pure function of stage and number, and an epoch visits every window once."""

from __future__ import annotations

import torch
from training.embedded.corpus import Document
from training.embedded.sequences import Sequences, encoded
from training.embedded.vocabulary import train_vocabulary

DOCUMENTS = [torch.arange(start, start + 37) for start in range(0, 370, 37)]


def test_same_number_same_sequences() -> None:
    one, other = Sequences(DOCUMENTS, seed=1), Sequences(DOCUMENTS, seed=1)
    for number in (0, 5, 40, 5):
        assert torch.equal(one.batch(0, number, 2, 16), other.batch(0, number, 2, 16))
    other.batch(1, 3, 1, 32)
    assert torch.equal(one.batch(0, 5, 2, 16), other.batch(0, 5, 2, 16))


def test_rows_hold_one_token_more_than_they_predict_from() -> None:
    assert Sequences(DOCUMENTS, seed=1).batch(0, 0, 2, 16).shape == (2, 17)


def test_an_epoch_visits_every_window_once() -> None:
    sequences = Sequences(DOCUMENTS, seed=1)
    num_windows = (370 - 1) // 16
    rows = torch.cat([sequences.batch(0, number, 1, 16)[:, :-1] for number in range(num_windows)])
    assert len(set(rows.flatten().tolist())) == num_windows * 16


def test_epochs_and_seeds_and_stages_differ() -> None:
    sequences = Sequences(DOCUMENTS, seed=1)
    num_windows = (370 - 1) // 16
    first = sequences.batch(0, 0, num_windows, 16)
    assert not torch.equal(first, sequences.batch(0, 1, num_windows, 16))
    assert not torch.equal(first, sequences.batch(1, 0, num_windows, 16))
    assert not torch.equal(first, Sequences(DOCUMENTS, seed=2).batch(0, 0, num_windows, 16))


def test_documents_are_framed_by_begin_and_end() -> None:
    vocabulary = train_vocabulary(["x = 1\n"], 280)
    (tokens,) = encoded(vocabulary, [Document("a.py", "x = 1\n", "code")])
    assert tokens[0] == 0
    assert tokens[-1] == 1
    assert vocabulary.decode(tokens[1:-1].tolist()) == "x = 1\n"
