"""What a job tries next, and when it stops: decisions on plain values. Never Ray, processes or SQL."""
