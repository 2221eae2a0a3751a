"""Allow or deny the permission requests of the agent."""
