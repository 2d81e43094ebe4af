"""What people read. Nothing here computes a statistic."""
