"""Every byte between server and client is made and read here, and counted in one ledger."""
