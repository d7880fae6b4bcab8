"""The API on unix sockets: requests in, the published reading out. No measuring and no judging of clocks here."""
