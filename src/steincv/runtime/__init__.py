"""What a computation needs of its machine and process: workers, threads, memory, files, the compile cache."""
