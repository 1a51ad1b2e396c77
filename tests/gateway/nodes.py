"""Nodes for tests of what holds and stores them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tidemill_common.tokens import pack
from tidemill_gateway.chain import Chain
from tidemill_gateway.conversation import Node

ROOT = b"r" * 16


def empty_chain(tenant: str = "") -> Chain:
    """The empty chain of any tenant."""
    return Chain.empty(ROOT, 16)


@dataclass
class Maker:
    """Makes nodes with ids of their own."""

    made: int = 0

    def node(
        self,
        parent: Node | None = None,
        *,
        tenant: str = "t",
        prompt: int = 20,
        output: int = 5,
        stored: bool = True,
        whole: bool = False,
        padding: int = 0,
    ) -> Node:
        """A node after ``parent``; with ``whole`` its tokens start anew."""
        self.made += 1
        base = parent.chain if parent and parent.chain and not whole else empty_chain()
        start = base.length + self.made * 1000
        sampled = pack(range(start + prompt, start + prompt + output))
        chain = base.extend(pack(range(start, start + prompt)))
        return Node(
            response_id=f"resp_{self.made}",
            tenant=tenant,
            parent=parent,
            chain=chain.extend(sampled) if sampled else chain,
            output=sampled,
            state=f"state {self.made}".encode(),
            preamble=b"p" * 16,
            text_tail=f"tail {self.made}",
            items=json.dumps(f"input {self.made}" + "x" * padding),
            response=json.dumps({"id": f"resp_{self.made}", "output": [message(f"output {self.made}")] if output else []}),
            model_turns=(parent.model_turns if parent else 0) + (1 if output else 0),
            session="s",
            stored=stored,
        )


def message(text: str) -> dict[str, object]:
    """An assistant's message."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
