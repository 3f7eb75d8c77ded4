"""A pack of pytest-packbench: does a pipeline convert units, and does it refuse what can't be converted?"""
