"""The rules of the diagnosis, by what they are about. `table` lists them."""
