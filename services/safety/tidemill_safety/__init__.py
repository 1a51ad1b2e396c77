"""Verdicts on text: deny rules and a linear classifier."""
