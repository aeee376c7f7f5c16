"""Prints the CustomResourceDefinitions and the page on conditions from the models."""
