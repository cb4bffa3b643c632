"""What the commands of `steincv` do, one module per command with one function, `run(options)`."""
