"""What every service shares: bootstrap, configuration, errors, telemetry, identity. Not a service."""

__version__ = "0.1.0"
