"""A pack of pytest-packbench: does a pipeline convert units and refuse impossible conversions?"""
