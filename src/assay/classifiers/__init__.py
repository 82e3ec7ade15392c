"""Classifiers: values with ``fit(copies, seed)``, which returns scores for all copies at once.

Copies come in; class-1 probabilities at any theta and x come out, for the data and for every null
copy. Features of members and x, which closed forms are made of, live here too.
"""

from .discriminant import LDA, QDA, Bayes
from .mlp import MLP
from .ridge import Ridge
from .sklearn import Sklearn

__all__ = ["LDA", "MLP", "QDA", "Bayes", "Ridge", "Sklearn"]
