"""Show runs, chats, sessions, plans and usage to people, as text or HTML."""
