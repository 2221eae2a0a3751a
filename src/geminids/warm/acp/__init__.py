"""Exchange messages with a warm process. The protocol is ACP: JSON-RPC over pipes."""
