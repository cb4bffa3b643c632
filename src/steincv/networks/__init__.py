"""Bayesian neural networks: models, a sampler, and predictions with less noise."""

from .full_gradient import full_gradient as full_gradient
from .model import full_scores as full_scores
from .network import Network as Network, Regressor as Regressor
from .network_field import NetworkField as NetworkField
from .predictive import Predictive as Predictive, entropy as entropy, predictive as predictive
