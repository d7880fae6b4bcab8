"""The API that the daemon and its clients share: messages, services, and the rule that reads them."""
