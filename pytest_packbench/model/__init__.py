"""The data types of the package: frozen, without input or output. Every other package may import them."""
