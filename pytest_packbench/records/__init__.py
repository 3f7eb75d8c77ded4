"""What a run leaves behind: the record of one case on the wire, and what is built of records."""
