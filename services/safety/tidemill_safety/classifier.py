"""A linear classifier over hashed n-grams, stored without pickle.

The file is a NumPy npz with three arrays: ``header`` (uint8 [n], JSON: format, bias, threshold, where the training data came
from), ``indices`` (uint32 [m] ascending) and ``weights`` (float16 [m]) of the buckets whose weight isn't 0.
"""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tidemill_common.errors import Reason, TidemillError
from tidemill_safety.features import BUCKETS, FORMAT, Indices, Values, features

DEFAULT_WEIGHTS_FILE = Path(__file__).with_name("default_weights.npz")


@dataclass(frozen=True, slots=True)
class Header:
    """What a weights file says of itself.

    Attributes:
        format: feature extraction that the weights belong to.
        bias: log-odds of a text without known n-grams.
        threshold: probability at and above which a text is refused, in (0, 1].
        examples: number of training examples.
        data_sha256: digest of the training data, hex.
    """

    format: str
    bias: float
    threshold: float
    examples: int
    data_sha256: str


class Classifier:
    """Scores one window of text."""

    def __init__(self, header: Header, indices: Indices, weights: Values) -> None:
        """``indices`` uint32 [m], ``weights`` float32 [m]. Raises ValueError when they don't fit this feature extraction."""
        if header.format != FORMAT or not 0 < header.threshold <= 1:
            raise ValueError(f"weights need format {FORMAT!r} and a threshold in (0, 1]; this is {header}")
        if indices.shape != weights.shape or indices.ndim != 1 or (indices.size and int(indices.max()) >= BUCKETS):
            raise ValueError(f"indices {indices.shape} and weights {weights.shape} aren't lists of buckets below {BUCKETS}")
        self.header = header
        self._table = np.zeros(BUCKETS, dtype=np.float32)
        self._table[indices] = weights

    def score(self, text: str) -> float:
        """Probability in [0, 1] that normalised ``text`` is unsafe; 0 for an empty one."""
        indices, values = features(text)
        if not indices.size:
            return 0.0
        return 1 / (1 + math.exp(-(float(self._table[indices] @ values) + self.header.bias)))

    @classmethod
    def load(cls, path: Path = DEFAULT_WEIGHTS_FILE) -> Classifier:
        """Read a weights file. Raises TidemillError(CONFIG) when it is missing, malformed or of another format."""
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                header = Header(**json.loads(file["header"].tobytes()))
                return cls(header, file["indices"].astype(np.uint32), file["weights"].astype(np.float32))
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise TidemillError(Reason.CONFIG, f"weights file {str(path)!r} can't be used: {error}") from error


def save(path: Path, header: Header, indices: Indices, weights: Values) -> None:
    """Write a weights file; equal arguments give equal bytes."""
    text = json.dumps(asdict(header), sort_keys=True).encode()
    np.savez(
        path,
        header=np.frombuffer(text, dtype=np.uint8),
        indices=indices.astype(np.uint32),
        weights=weights.astype(np.float16),
    )
