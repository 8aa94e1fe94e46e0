"""Sessions and chats: their state, turns, rules, parked requests and numbered stream."""
