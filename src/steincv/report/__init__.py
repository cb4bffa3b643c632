"""What a result looks like: tables for terminals and notebooks, and figures."""
