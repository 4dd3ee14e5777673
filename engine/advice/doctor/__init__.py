"""Doctor: checks of the machine, one row each: what is read, the rule, the words, and what to do."""
