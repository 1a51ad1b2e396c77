"""Unmodified clients against a running stack: `make clients`."""
