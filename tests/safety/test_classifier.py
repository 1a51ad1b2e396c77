from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_safety.classifier import Classifier, Header, save
from tidemill_safety.features import BUCKETS, FORMAT, features

HEADER = Header(FORMAT, bias=-1.0, threshold=0.5, examples=2, data_sha256="00")


def weights(text: str, value: float) -> tuple[np.ndarray, np.ndarray]:
    indices, _ = features(text)
    return indices, np.full(indices.shape, value, dtype=np.float32)


def test_a_saved_classifier_scores_as_before(tmp_path: Path) -> None:
    indices, values = weights("bad words", 2.0)
    save(tmp_path / "w.npz", HEADER, indices, values)
    loaded = Classifier.load(tmp_path / "w.npz")
    assert loaded.header == HEADER
    assert loaded.score("bad words") == pytest.approx(Classifier(HEADER, indices, values).score("bad words"))
    assert loaded.score("bad words") > 0.5 > loaded.score("kind people")


def test_an_empty_text_scores_nothing_and_an_unknown_one_the_bias() -> None:
    classifier = Classifier(HEADER, *weights("bad", 2.0))
    assert classifier.score("") == 0
    assert classifier.score("xyzzy") == pytest.approx(1 / (1 + np.e))


def test_equal_weights_are_saved_as_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        save(tmp_path / name, HEADER, *weights("bad words", 2.0))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.requirement("safety:no-pickle")
def test_a_file_with_pickled_objects_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    np.savez(path, header=np.array([{"format": FORMAT}], dtype=object), allow_pickle=True)
    with pytest.raises(TidemillError, match=r"w\.npz") as caught:
        Classifier.load(path)
    assert caught.value.reason is Reason.CONFIG


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04broken", b"not a zip at all"])
def test_a_malformed_or_missing_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.npz"
    with pytest.raises(TidemillError):
        Classifier.load(path)
    path.write_bytes(content)
    with pytest.raises(TidemillError):
        Classifier.load(path)


@pytest.mark.parametrize(
    ("header", "indices"),
    [
        (dataclasses.replace(HEADER, format="other"), [1]),
        (dataclasses.replace(HEADER, threshold=0.0), [1]),
        (HEADER, [BUCKETS]),
        (HEADER, [1, 2]),
    ],
)
def test_weights_of_another_shape_or_feature_format_are_refused(tmp_path: Path, header: Header, indices: list[int]) -> None:
    save(tmp_path / "w.npz", header, np.array(indices, dtype=np.uint32), np.ones(1, dtype=np.float32))
    with pytest.raises(TidemillError, match="can't be used"):
        Classifier.load(tmp_path / "w.npz")
