"""Classifiers that score members of all copies at once, for the data and for every null copy."""
