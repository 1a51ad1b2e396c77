"""Train the classifier: ``python -m tidemill_safety.train``.

Logistic regression by gradient descent with momentum on the mean log loss plus an L2 penalty. A fifth of the free texts,
chosen by their digest, is held out: the weights that ship never see it, and the printed evaluation is on it. The result depends
on the data alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tidemill_safety.classifier import DEFAULT_WEIGHTS_FILE, Classifier, Header, save
from tidemill_safety.features import FORMAT, Indices, Values, features
from tidemill_safety.normalise import normalise
from tidemill_safety.policy import Policy
from tidemill_safety.rules import Direction, load_rules

DATA_FILE = Path(__file__).with_name("training_examples.jsonl")
THRESHOLD = 0.85
STEPS = 400
STEP_SIZE = 20.0
MOMENTUM = 0.9
PENALTY = 2e-5
SMALLEST_WEIGHT = 0.02
HELD_OUT_ONE_IN = 5


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled text; ``group`` names the phrase that a text puts into a common frame, empty for a free text."""

    text: str
    unsafe: bool
    category: str
    group: str

    @property
    def held_out(self) -> bool:
        """Whether the example is for evaluation only; framed texts teach that the frame says nothing, and are always shown."""
        return not self.group and hashlib.sha256(self.text.encode()).digest()[0] % HELD_OUT_ONE_IN == 0


def read_examples(path: Path = DATA_FILE) -> list[Example]:
    """Examples of a JSON-lines file of ``{"label": "safe"|"unsafe", "category", "group", "text"}``."""
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    label = {"safe": False, "unsafe": True}
    return [Example(entry["text"], label[entry["label"]], entry["category"], entry["group"]) for entry in entries]


def fit(examples: list[Example]) -> tuple[float, Indices, Values]:
    """Bias, buckets (uint32 [m]) and weights (float32 [m]) of a logistic regression in which both classes weigh the same."""
    parts = [features(normalise(example.text)) for example in examples]
    buckets, columns = np.unique(np.concatenate([indices for indices, _ in parts]), return_inverse=True)
    values = np.concatenate([value for _, value in parts]).astype(np.float64)
    rows = np.repeat(np.arange(len(parts)), [len(value) for _, value in parts])
    target = np.array([example.unsafe for example in examples], dtype=np.float64)
    share = np.where(target > 0, 0.5 / target.sum(), 0.5 / (1 - target).sum())
    weights, bias = np.zeros(len(buckets)), 0.0
    speed, bias_speed = np.zeros(len(buckets)), 0.0
    for _ in range(STEPS):
        logits = np.bincount(rows, weights=values * weights[columns], minlength=len(parts)) + bias
        error = (1 / (1 + np.exp(-logits)) - target) * share
        gradient = np.bincount(columns, weights=values * error[rows], minlength=len(buckets)) + PENALTY * weights
        speed = MOMENTUM * speed - STEP_SIZE * gradient
        bias_speed = MOMENTUM * bias_speed - STEP_SIZE / 20 * float(error.sum())
        weights, bias = weights + speed, bias + bias_speed
    kept = np.abs(weights) >= SMALLEST_WEIGHT
    return round(bias, 4), buckets[kept].astype(np.uint32), weights[kept].astype(np.float32)


def train(examples: list[Example], data_sha256: str, path: Path) -> Classifier:
    """Fit the examples that aren't held out and write the weights to ``path``."""
    shown = [example for example in examples if not example.held_out]
    bias, buckets, weights = fit(shown)
    save(path, Header(FORMAT, bias, THRESHOLD, len(shown), data_sha256), buckets, weights)
    return Classifier.load(path)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Counts and rates on labelled scores; ``auc`` is the chance that an unsafe text scores above a safe one."""

    true_positives: int
    false_positives: int
    true_negatives: int
    false_negatives: int
    auc: float

    @property
    def precision(self) -> float:
        """Share of refused texts that are unsafe."""
        return self.true_positives / max(1, self.true_positives + self.false_positives)

    @property
    def recall(self) -> float:
        """Share of unsafe texts that are refused."""
        return self.true_positives / max(1, self.true_positives + self.false_negatives)

    def __str__(self) -> str:
        return (
            f"precision {self.precision:.3f}  recall {self.recall:.3f}  AUC {self.auc:.3f}  "
            f"TP {self.true_positives}  FP {self.false_positives}  TN {self.true_negatives}  FN {self.false_negatives}"
        )


def evaluate(scores: npt.NDArray[np.float64], unsafe: npt.NDArray[np.bool_], threshold: float) -> Evaluation:
    """Compare scores, float64 [n], with labels, bool [n]."""
    refused = scores >= threshold
    pairs = scores[unsafe][:, None] - scores[~unsafe][None, :]
    auc = float(np.mean((pairs > 0) + 0.5 * (pairs == 0))) if pairs.size else 1.0
    counts = [int(np.sum(mask)) for mask in (refused & unsafe, refused & ~unsafe, ~refused & ~unsafe, ~refused & unsafe)]
    return Evaluation(counts[0], counts[1], counts[2], counts[3], auc)


def report(classifier: Classifier, examples: list[Example]) -> str:
    """Evaluation on the shown and the held-out examples: at the shipped threshold, at 0.5, and joined with the deny rules."""
    policy = Policy(load_rules(), classifier)
    lines = []
    for title, held_out in (("training", False), ("held out", True)):
        chosen = [example for example in examples if example.held_out is held_out]
        scores = np.array([classifier.score(normalise(example.text)) for example in chosen])
        unsafe = np.array([example.unsafe for example in chosen], dtype=np.bool_)
        refused = np.array([not policy.check("", example.text, _direction(example)).allowed for example in chosen])
        for name, values, threshold in (
            ("shipped threshold", scores, classifier.header.threshold),
            ("threshold 0.5", scores, 0.5),
            ("with deny rules", refused.astype(np.float64), 0.5),
        ):
            lines.append(f"{title:9} {len(chosen):4} texts  {name:17}  {evaluate(values, unsafe, threshold)}")
    return "\n".join(lines)


def _direction(example: Example) -> Direction:
    return Direction.OUTPUT if example.category == "output" else Direction.INPUT


def main() -> None:
    """Train, write, evaluate."""
    parser = argparse.ArgumentParser(prog="python -m tidemill_safety.train", description="Train the safety classifier.")
    parser.add_argument("--data", type=Path, default=DATA_FILE, help="JSON lines of label, category, text")
    parser.add_argument("--out", type=Path, default=DEFAULT_WEIGHTS_FILE, help="weights file to write")
    options = parser.parse_args()
    examples = read_examples(options.data)
    classifier = train(examples, hashlib.sha256(options.data.read_bytes()).hexdigest(), options.out)
    sys.stdout.write(f"{report(classifier, examples)}\n{options.out}: {options.out.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
