"""What is known of tuned models, moved to others."""
