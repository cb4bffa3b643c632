"""Control variates for many dimensions, where the D^2 / 2 features of a quadratic are more than the draws."""
