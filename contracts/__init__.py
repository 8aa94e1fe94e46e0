"""Pure shapes, names, limits, error codes and rules of every wire: no I/O, no trio, no clock."""
