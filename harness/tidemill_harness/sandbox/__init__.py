"""Where the model's commands run.

``policy`` says what a command may do, ``bubblewrap``, ``landlock`` and ``seatbelt`` enforce it, ``probe`` finds out which of
them works here, ``process`` runs a command under time and output limits.
"""
