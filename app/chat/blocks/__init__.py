"""The widgets of one message's blocks: prose, code, table, math, think fold, rule."""
