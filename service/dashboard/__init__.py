"""Pages for people, a room for each: what they show and how they are drawn. Never a write: buttons call the API."""
