from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from tidemill_safety.classifier import DEFAULT_WEIGHTS_FILE, Classifier
from tidemill_safety.features import BUCKETS
from tidemill_safety.train import DATA_FILE, Example, evaluate, fit, main, read_examples, report, train

EXAMPLES = read_examples()
DIGEST = hashlib.sha256(DATA_FILE.read_bytes()).hexdigest()


def dense(path: Path) -> np.ndarray:
    with np.load(path, allow_pickle=False) as file:
        table = np.zeros(BUCKETS, dtype=np.float32)
        table[file["indices"]] = file["weights"]
    return table


@pytest.mark.requirement("safety:reproducible-weights")
def test_training_again_gives_the_committed_weights(tmp_path: Path) -> None:
    again = train(EXAMPLES, DIGEST, tmp_path / "again.npz")
    shipped = Classifier.load()
    assert again.header == shipped.header
    # exp differs by a bit between CPUs, which can move a weight across the cut below which it is dropped.
    np.testing.assert_allclose(dense(tmp_path / "again.npz"), dense(DEFAULT_WEIGHTS_FILE), atol=0.03)


def test_the_same_data_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        train(EXAMPLES[::9], DIGEST, tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_examples_are_distinct_and_both_splits_have_both_labels() -> None:
    assert len({example.text for example in EXAMPLES}) == len(EXAMPLES)
    assert len({(example.held_out, example.unsafe) for example in EXAMPLES}) == 4
    assert not any(example.held_out for example in EXAMPLES if example.group)


@pytest.mark.requirement("safety:published-evaluation")
def test_shipped_weights_refuse_few_safe_texts_that_they_never_saw() -> None:
    classifier = Classifier.load()
    held_out = [example for example in EXAMPLES if example.held_out]
    scores = np.array([classifier.score(example.text.lower()) for example in held_out])
    unsafe = np.array([example.unsafe for example in held_out])
    result = evaluate(scores, unsafe, classifier.header.threshold)
    assert result.false_positives <= 2
    assert result.auc >= 0.8


def test_fitting_separates_what_differs() -> None:
    examples = [Example("red red", True, "", ""), Example("blue blue", False, "", "")]
    bias, indices, weights = fit(examples)
    assert indices.dtype == np.uint32
    assert weights.shape == indices.shape
    assert abs(bias) < 1


def test_evaluation_counts_and_ranks() -> None:
    result = evaluate(np.array([0.9, 0.8, 0.4, 0.1]), np.array([True, False, True, False]), 0.5)
    assert (result.true_positives, result.false_positives, result.true_negatives, result.false_negatives) == (1, 1, 1, 1)
    assert (result.precision, result.recall, result.auc) == (0.5, 0.5, 0.75)


def test_the_command_trains_writes_and_prints_its_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "weights.npz"
    monkeypatch.setattr("sys.argv", ["train", "--out", str(out)])
    main()
    printed = capsys.readouterr().out
    assert report(Classifier.load(out), EXAMPLES) in printed
    assert "held out" in printed
    assert "recall" in printed
