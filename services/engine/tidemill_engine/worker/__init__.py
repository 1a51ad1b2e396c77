"""What both workers share around the engine: registration with routers, membership, messages, process life."""
