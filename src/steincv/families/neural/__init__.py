"""Neural control variates: trial functions, objectives, and the two ways to train them."""
