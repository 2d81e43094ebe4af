"""Who is told, once."""
