"""The generic pack: any pipeline that gives JSON, scored by rules that stand in `suite.yaml`."""
