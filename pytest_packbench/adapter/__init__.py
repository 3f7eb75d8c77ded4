"""The adapter: the only room that knows pytest, beside `plugin` and `hookspecs`."""
