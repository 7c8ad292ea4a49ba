"""Pages for people, a folder for each: what they show and how they are drawn. Never a write: buttons call the API."""
