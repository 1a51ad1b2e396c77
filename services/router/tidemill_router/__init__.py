"""Choice of workers by the KV blocks they hold, weighed against their load."""
