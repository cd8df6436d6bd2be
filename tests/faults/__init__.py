"""The fault simulator: federations under random faults, through the real server, client, codec and store."""
