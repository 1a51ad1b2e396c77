"""The prefill worker: computes prompts and streams their KV blocks."""
