"""The private home: settings, MCP servers, sign-in."""
