"""steincv."""
