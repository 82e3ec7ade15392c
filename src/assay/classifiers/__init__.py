"""Classifiers: values with ``fit(copies, seed)``, which returns scores for all copies at once."""

from .discriminant import LDA, QDA, Bayes
from .mlp import MLP
from .ridge import Ridge
from .sklearn import Sklearn

__all__ = ["LDA", "MLP", "QDA", "Bayes", "Ridge", "Sklearn"]
