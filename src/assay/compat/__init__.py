"""Classes of other libraries with their own signatures, so that a script changes one import."""
