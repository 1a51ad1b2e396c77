"""What transformers generates greedily, with the model's own chat template and tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEAR_TIE = 1e-3


@dataclass(frozen=True)
class Reference:
    """A greedy answer.

    Attributes:
        prompt_tokens: length of the prompt.
        pieces: the answer's text after each token, from none on.
        margins: difference of the two best logits at each token.
    """

    prompt_tokens: int
    pieces: tuple[str, ...]
    margins: tuple[float, ...]

    def agrees(self, text: str) -> bool:
        """Whether ``text`` is this answer; it may leave it where two tokens are as good, since sums depend on their order."""
        if text == self.pieces[-1]:
            return True
        shared = max(place for place, piece in enumerate(self.pieces) if text.startswith(piece))
        return shared < len(self.margins) and self.margins[shared] < NEAR_TIE


class Greedy:
    """transformers' own model, in float32."""

    def __init__(self, directory: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        # Threads that wait for the next of many small steps would take the processors from the services.
        torch.set_num_threads(1)
        self._torch = torch
        self._tokenizer: Any = AutoTokenizer.from_pretrained(directory)
        self._model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)

    def answer(self, text: str, max_tokens: int) -> Reference:
        """The answer to a user's message."""
        torch, message = self._torch, [{"role": "user", "content": text}]
        rendered = self._tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        ids = self._tokenizer(rendered, add_special_tokens=False).input_ids
        output = self._model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=max_tokens,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        new = output.sequences[0][len(ids) :].tolist()
        best = [logits[0].topk(2).values for logits in output.logits]
        pieces = [self._tokenizer.decode(new[:count], skip_special_tokens=True) for count in range(len(new) + 1)]
        return Reference(len(ids), tuple(pieces), tuple(float(two[0] - two[1]) for two in best))
