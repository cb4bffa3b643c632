"""Example models: conjugate linear regression, the van der Pol oscillator, the Goodwin oscillator."""
