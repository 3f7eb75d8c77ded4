"""The vocabulary of the project: frozen values without input or output. Everyone may import it."""
