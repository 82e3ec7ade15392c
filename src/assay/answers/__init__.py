"""Answers: is x_o like the simulations, how far off is q, and a predictive check."""
