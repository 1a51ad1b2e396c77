"""The Responses API over WebSocket, SSE and JSON: holds conversations as tokens, and joins the other services to a turn."""
