"""The one renderer of evidence: words and numbers for people, from typed values. Never a decision."""
