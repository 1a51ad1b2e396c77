"""The agent loop and the `tidemill` command."""
