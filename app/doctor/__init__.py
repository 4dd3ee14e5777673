"""Doctor: the checks of the machine as a page."""
