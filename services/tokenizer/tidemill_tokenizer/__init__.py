"""Rendering and encoding of conversation items, a pure function of render state and new items."""
