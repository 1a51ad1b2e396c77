"""The decode worker: generates turns, pulling KV from a prefill worker where that is cheaper."""
