"""What tests of several packages share: waiting, servers of PostgreSQL and S3. Never a test."""
